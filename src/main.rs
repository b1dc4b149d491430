//! Entry point: parses the command line, runs the subcommand, and returns its exit status.

use std::io::{self, Write as _};
use std::{env, process::ExitCode};

use mimalloc::MiMalloc;
use tokio::runtime::Builder;
use tollgate::bootstrap;
use tollgate::settings::{self, Command, Settings};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match settings::parse(env::args_os(), env::vars_os()) {
        Ok(Command::Serve(settings)) => serve(*settings),
        #[cfg(feature = "cli")]
        // An error means that the reader of the report closed the pipe.
        Ok(Command::Cli(command)) => {
            match command.run(settings::command(), &mut io::stdout(), &mut io::stderr()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) | Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            error.print();
            error.exit_code().into()
        }
    }
}

/// Runs the server. Exits with 0 after a graceful shutdown, else with [`bootstrap::RunError::exit_code`].
fn serve(settings: Settings) -> ExitCode {
    if let Err(error) = tollgate_telemetry::log::install(settings.process.log) {
        // Logging is not available yet.
        let _ = writeln!(io::stderr(), "cannot install the logger: {error}");
        return ExitCode::FAILURE;
    }
    disable_huge_pages();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the runtime");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(bootstrap::run(settings));
    // Remaining tasks are not awaited, after a graceful shutdown or a second signal.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "tollgate stopped with an error");
            error.exit_code().into()
        }
    }
}

/// Disables transparent huge pages, which the allocator requests: the kernel clears 2 MiB at the first use of each one, in
/// virtual machines for up to 8 ms, while the requests of a worker wait. They hardly save time, and double the memory.
fn disable_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "cannot disable transparent huge pages");
    }
}
