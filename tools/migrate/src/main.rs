//! Entry point of `tollgate-migrate`.

use std::{env, io, process::ExitCode};

use clap::Parser as _;
use tollgate_migrate::{MigrateFlags, run};

fn main() -> ExitCode {
    match run(&MigrateFlags::parse(), env::vars_os(), &mut io::stdout(), &mut io::stderr()) {
        Ok(true) => ExitCode::SUCCESS,
        // An error means that the reader of the report closed the pipe.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}
