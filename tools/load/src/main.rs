//! Entry point of `tollgate-load`.

use std::{env, io, process::ExitCode};

use mimalloc::MiMalloc;
use tollgate_load::{LoadSettings, run};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let settings = LoadSettings::read(env::args_os()).unwrap_or_else(|error| error.exit());
    match run(&settings, &mut io::stdout(), &mut io::stderr()) {
        Ok(true) => ExitCode::SUCCESS,
        // An error means that the reader of the report closed the pipe.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}
