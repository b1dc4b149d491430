//! The subcommands: each reads its settings, writes to what it is given, and returns whether it succeeded.

pub mod admin_client;
pub mod check;
pub mod docs;

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use clap_complete::Shell;

use crate::settings::command;

/// `tollgate completions`: prints the completions of a shell.
///
/// # Errors
/// The output is closed.
pub fn completions(shell: Shell, out: &mut impl Write) -> io::Result<bool> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "tollgate", &mut script);
    out.write_all(&script)?;
    Ok(true)
}

/// `tollgate man`: prints the manual page, or writes it with one for each command to a directory. A directory that cannot
/// be written is reported on `errors`.
///
/// # Errors
/// The output is closed.
pub fn man(directory: Option<&Path>, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    let Some(directory) = directory else {
        clap_mangen::Man::new(command()).render(out)?;
        return Ok(true);
    };
    match fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command(), directory)) {
        Ok(()) => Ok(true),
        Err(error) => {
            writeln!(errors, "cannot write the pages to {}: {error}", directory.display())?;
            Ok(false)
        }
    }
}
