//! The command line of tollgate: reads it, runs what it asks for, and exits with a code that says how it went.

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

use mimalloc::MiMalloc;
use tokio::runtime::Builder;
use tollgate::{
    bootstrap,
    cli::{admin_client, check, docs, explain, migrate},
    settings::{self, Command, Settings},
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match settings::parse(env::args_os(), env::vars_os()) {
        Ok(Command::Serve(settings)) => serve(*settings),
        Ok(Command::Check(flags)) => ended(&check::run(&flags, &mut io::stdout(), &mut io::stderr())),
        Ok(Command::Explain(flags)) => ended(&explain::run(&flags, &mut io::stdout(), &mut io::stderr())),
        Ok(Command::Migrate(settings)) => {
            ended(&migrate::run(&settings, &mut io::stdout(), &mut io::stderr()))
        }
        Ok(Command::Load(settings)) => {
            ended(&tollgate_load::run(&settings, &mut io::stdout(), &mut io::stderr()))
        }
        Ok(Command::Docs(page)) => ended(&docs::run(page, &mut io::stdout())),
        Ok(Command::Operate(settings)) => {
            ended(&admin_client::run(&settings, &mut io::stdout(), &mut io::stderr()))
        }
        Err(error) => {
            error.print();
            error.exit_code().into()
        }
    }
}

/// Exits with 0 after an orderly stop, else as [`bootstrap::RunError`] says.
fn serve(settings: Settings) -> ExitCode {
    if let Err(error) = tollgate::tracing::install(settings.process.log) {
        // There is no other way to tell.
        let _ = writeln!(io::stderr(), "cannot log: {error}");
        return ExitCode::FAILURE;
    }
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("cannot start a runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(bootstrap::run(settings));
    // What still runs after an orderly stop, or a second signal, is not waited for.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            error.exit_code().into()
        }
    }
}

/// Exits with 0 when all is as it should be, else with 1.
fn ended(is_good: &io::Result<bool>) -> ExitCode {
    match is_good {
        Ok(true) => ExitCode::SUCCESS,
        // An error means that nobody reads the report.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}
