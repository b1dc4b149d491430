//! The log: one line per event, on stderr.

mod dependencies;

use std::{backtrace::Backtrace, io, panic};

use tracing_subscriber::{layer::SubscriberExt as _, util::TryInitError};

use self::dependencies::DependencyLines;
use super::{LogFormat, LogSettings};

/// Installs the subscriber, once per process, and a hook that logs panics.
///
/// # Errors
/// If a subscriber is already installed.
pub fn install(settings: LogSettings) -> Result<(), TryInitError> {
    use tracing_subscriber::util::SubscriberInitExt as _;

    let lines = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(settings.level);
    let dependencies = DependencyLines::new(settings.level);
    match settings.format {
        LogFormat::Text => {
            let lines = lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr()));
            lines.finish().with(dependencies).try_init()?;
        }
        LogFormat::Json => lines.json().flatten_event(true).finish().with(dependencies).try_init()?,
    }
    panic::set_hook(Box::new(|panic| {
        let text = panic.payload().downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.payload().downcast_ref::<String>().map(String::as_str));
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        // Empty unless RUST_BACKTRACE is set.
        let backtrace = Backtrace::capture();
        let message = text.unwrap_or("no message");
        tracing::error!(error = message, %location, %backtrace, "panic");
    }));
    Ok(())
}
