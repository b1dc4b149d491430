//! The subcommands: each reads its settings, writes to what it is given, and returns whether it succeeded.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

pub mod admin_client;
pub mod check;
pub mod flags;

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use clap::Command;
use clap_complete::Shell;

/// Prints the completions of a shell for a command line.
///
/// # Errors
/// The output is closed.
pub fn completions(mut command: Command, shell: Shell, out: &mut impl Write) -> io::Result<bool> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "tollgate", &mut script);
    out.write_all(&script)?;
    Ok(true)
}

/// Prints the manual page of a command line, or writes it with one for each command to a directory. A directory that cannot
/// be written is reported on `errors`.
///
/// # Errors
/// The output is closed.
pub fn man(
    command: Command,
    directory: Option<&Path>,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<bool> {
    let Some(directory) = directory else {
        clap_mangen::Man::new(command).render(out)?;
        return Ok(true);
    };
    match fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory)) {
        Ok(()) => Ok(true),
        Err(error) => {
            writeln!(errors, "cannot write the pages to {}: {error}", directory.display())?;
            Ok(false)
        }
    }
}
