//! The subcommands: each reads its settings, writes to what it is given, and returns whether it succeeded.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

mod admin_client;
mod check;
pub mod flags;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::Shell;

use self::flags::{AdminClientSettings, CheckFlags, ExplainFlags};

/// Subcommands that do not serve.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Validate a configuration: report every problem, and exit with 1 if there is one.
    Check(CheckFlags),
    /// Explain the rules that a request matches: the branch that each entry takes and those it passes over, the limit, the
    /// counter, its hash tag and its Redis Cluster slot. Charges nothing.
    Explain(ExplainFlags),
    #[command(flatten)]
    AdminClient(Box<AdminClientSettings>),
    /// Print the JSON Schema of the rules and of overlays, for editors.
    Schema,
    /// Print the completions of a shell, for a file that it loads.
    Completions {
        /// Shell that loads the completions.
        #[arg(value_name = "SHELL", value_enum)]
        shell: Shell,
    },
    /// Print the manual page, or write one for each command to a directory.
    Man {
        /// Directory for the pages, which is created.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

impl Verb {
    /// Runs the subcommand of a program with the command line `program`. Returns whether it succeeded without findings.
    ///
    /// # Errors
    /// The output is closed.
    pub fn run(
        self,
        program: clap::Command,
        out: &mut impl Write,
        errors: &mut impl Write,
    ) -> io::Result<bool> {
        match self {
            Self::Check(flags) => check::check(&flags, out, errors),
            Self::Explain(flags) => check::explain(&flags, out, errors),
            Self::AdminClient(settings) => admin_client::run(&settings, out, errors),
            Self::Schema => check::schema(out),
            Self::Completions { shell } => completions(program, shell, out),
            Self::Man { directory } => man(program, directory.as_deref(), out, errors),
        }
    }
}

/// Whether a subcommand prints files for other programs, and so reads no variables.
pub fn prints_files(verb: &str) -> bool {
    matches!(verb, "schema" | "completions" | "man")
}

/// Prints the completions of a shell for a command line.
///
/// # Errors
/// The output is closed.
fn completions(mut command: clap::Command, shell: Shell, out: &mut impl Write) -> io::Result<bool> {
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
fn man(
    command: clap::Command,
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
