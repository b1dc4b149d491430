//! The log: one line per event, on stderr. Lines of dependencies are at most one a minute from each place in their code, and
//! those of `debug` only at `trace`.
//!
//! Clients cause some of them: h2 logs a warning for each connection that resets too many calls, and for each PING
//! acknowledgement that it did not request; at `debug` it logs every frame. This process logs changes of state instead, which
//! clients cannot cause at will.

use std::time::{Duration, Instant};
use std::{backtrace::Backtrace, collections::HashMap, hash::Hash, io, panic};

use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use tollgate_flags::level;
use tracing::{Event, Level, Metadata, Subscriber, callsite::Identifier, level_filters::LevelFilter};
use tracing_log::NormalizeEvent as _;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, util::TryInitError};

/// Level and format of the log.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Least severe level that is logged: off, error, warn, info, debug or trace.
    #[arg(id = "log-level", long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    pub level: LevelFilter,
    /// Format of a log line.
    #[arg(id = "log-format", long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

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

/// Shortest time between two lines of one place.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Start of the targets of this project.
const OWN_TARGET: &str = "tollgate";

/// Start of the targets of file events, whose lines report watches of directories that were deleted: each update of a
/// ConfigMap does that. The watcher of the rules logs what matters.
const FILE_EVENTS_TARGET: &str = "notify";

/// Start of the targets of the HTTP client of webhooks, whose verbose lines have the URL and the headers.
const HTTP_CLIENT_TARGET: &str = "ureq";

/// Drops lines of dependencies that follow one of the same place too soon, unless the log is verbose; and all that have secrets.
#[derive(Debug)]
pub(super) struct DependencyLines {
    is_verbose: bool,
    /// Times of the latest lines, by place. Their number is that of the places in the code.
    logged: Mutex<HashMap<Identifier, Instant>>,
}

impl DependencyLines {
    pub(super) fn new(level: LevelFilter) -> Self {
        Self { is_verbose: level >= LevelFilter::TRACE, logged: Mutex::default() }
    }
}

impl<S: Subscriber> Layer<S> for DependencyLines {
    /// Decided once for each place, so that one that is disabled costs nothing.
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_verbose || *metadata.level() <= Level::INFO || metadata.target().starts_with(OWN_TARGET)
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Lines of the `log` crate have their own.
        let origin = event.normalized_metadata();
        let is_of = |target| origin.as_ref().unwrap_or(metadata).target().starts_with(target);
        if is_of(HTTP_CLIENT_TARGET) || !self.is_verbose && is_of(FILE_EVENTS_TARGET) {
            return false;
        }
        self.is_verbose
            || metadata.target().starts_with(OWN_TARGET)
            || admits(&mut self.logged.lock(), metadata.callsite(), Instant::now())
    }
}

/// Whether a line of this place is logged now.
fn admits<P: Eq + Hash>(times: &mut HashMap<P, Instant>, place: P, now: Instant) -> bool {
    let is_due = |last: &Instant| now.saturating_duration_since(*last) >= LINE_INTERVAL;
    let is_admitted = times.get(&place).is_none_or(is_due);
    if is_admitted {
        times.insert(place, now);
    }
    is_admitted
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Lines of a dependency, a second place of it, and this project, and those of both at `debug`, each ten times.
    fn logged(level: LevelFilter) -> [usize; 6] {
        let lines = Lines::default();
        let sink = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || sink.clone()).with_max_level(level);
        with_default(log.finish().with(DependencyLines::new(level)), || {
            for _ in 0..10 {
                tracing::warn!(target: "h2::proto::streams::recv", "too many resets");
                tracing::warn!(target: "h2::proto::ping_pong", "unexpected PING");
                tracing::warn!(target: "tollgate::net", "of this project");
                tracing::debug!(target: "h2::codec", "received frame");
                tracing::warn!(target: "notify::inotify", "not in the watches");
                tracing::debug!(target: "tollgate_store::redis", "own detail");
            }
        });
        let text = String::from_utf8(lines.0.lock().clone()).expect("a text");
        ["too many", "unexpected", "of this", "frame", "detail", "not in"]
            .map(|message| text.matches(message).count())
    }

    #[test]
    fn lines_that_clients_cause_in_dependencies_are_logged_once() {
        assert_eq!(logged(LevelFilter::INFO), [1, 1, 10, 0, 0, 0]);
    }

    #[test]
    fn details_of_dependencies_are_logged_at_trace_alone() {
        assert_eq!(logged(LevelFilter::DEBUG), [1, 1, 10, 0, 10, 0]);
        assert_eq!(logged(LevelFilter::TRACE), [10; 6]);
    }

    #[test]
    fn a_place_is_logged_again_after_a_minute() {
        let (mut times, now) = (HashMap::new(), Instant::now());
        let almost = LINE_INTERVAL - Duration::from_millis(1);
        assert!(admits(&mut times, 1, now) && !admits(&mut times, 1, now + almost));
        assert!(admits(&mut times, 1, now + LINE_INTERVAL));
        assert!(!admits(&mut times, 1, now + LINE_INTERVAL + almost));
    }
}
