//! Load generator for Envoy's rate-limit service: measures throughput, latency and the hits that each key is admitted.
//!
//! ```text
//! run ── starts ──> threads: each a runtime with its share of the connections
//!   │                   └─ connections: HTTP/2, each with a fixed number of streams
//!   └─ progress             └─ stream: open_loop (when) ─> keys (which key) ─> request ─> response ─> tally
//! ```
//!
//! - `request` encodes a request by filling the number of a key into a template; `connection` sends it.
//!   Both are cheap, so that the server is measured and not the generator.
//! - `open_loop` releases requests when they are due, with a timer more precise than a runtime's; `keys` draws keys.
//! - `tally` holds the measurements of a thread, and the hits granted to each key. `report` shows the progress, sums them up
//!   and prints them.

// Counts of requests, hits and nanoseconds of one run, which 64 bits hold. Lengths of phases are checked where they are added.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

mod connection;
mod keys;
mod open_loop;
mod report;
mod request;
mod settings;
mod tally;
mod thread;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::CreationError;
use parking_lot::Mutex;
use tokio::{runtime::Builder, select, signal, sync::mpsc};
use tokio_util::sync::CancellationToken;

use self::report::{Progress, Report};
use self::request::{RequestError, Requests};
pub use self::settings::{KEY, LoadSettings};
use self::tally::{Admissions, Tally};
use self::{keys::Keys, thread::Ready};

/// State that all threads share.
#[derive(Debug)]
struct Run {
    settings: LoadSettings,
    requests: Requests,
    keys: Keys,
    admissions: Admissions,
    /// One for each thread; only the progress line takes the lock of another thread.
    tallies: Vec<Mutex<Tally>>,
    /// Cancelled to end early: no further requests are sent, and those in flight are awaited.
    stop: CancellationToken,
}

/// Start of the warm-up, start of the measurement, and end.
#[derive(Clone, Copy, Debug)]
struct Phases {
    start: Instant,
    measure: Instant,
    end: Instant,
}

/// Reasons why there is no report.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("cannot connect to {0}")]
    Connect(RequestError),
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    #[error("cannot create a latency histogram: {0}")]
    Histogram(#[from] CreationError),
    #[error("a load thread panicked")]
    Panicked,
}

/// Generates the load and writes the report to `out`; problems and progress go to `errors`. Returns whether any request
/// was answered and no key was admitted more hits than its limit.
///
/// # Errors
/// If the output can't be written.
pub fn run(settings: &LoadSettings, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    match measure(settings, errors) {
        Ok(report) => {
            if settings.json {
                writeln!(out, "{}", report.json())?;
            } else {
                report::write(out, &report)?;
            }
            for failure in report.failures() {
                writeln!(errors, "{failure}")?;
            }
            Ok(report.failures().next().is_none())
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            Ok(false)
        }
    }
}

fn measure(settings: &LoadSettings, errors: &mut impl Write) -> Result<Report, LoadError> {
    let tallies: Result<_, _> = (0..settings.threads).map(|_| Tally::new().map(Mutex::new)).collect();
    let run = Arc::new(Run {
        settings: settings.clone(),
        requests: Requests::new(settings),
        keys: Keys::new(settings.keys, settings.zipf),
        admissions: Admissions::new(settings.keys, settings.hits.get().into(), settings.admitted_limit),
        tallies: tallies?,
        stop: CancellationToken::new(),
    });
    let (ready, mut readies) = mpsc::unbounded_channel();
    let started: io::Result<Vec<_>> =
        (0..settings.threads).map(|thread| thread::start(thread, Arc::clone(&run), ready.clone())).collect();
    let threads = started?;
    drop(ready);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(supervise(&run, &mut readies, errors))?;
    for thread in threads {
        thread.join().map_err(|_| LoadError::Panicked)?;
    }
    Report::new(&run, measured)
}

/// Starts the threads together and waits for the end, or for SIGINT. Returns the length of the measurement.
async fn supervise(
    run: &Run,
    readies: &mut mpsc::UnboundedReceiver<Ready>,
    errors: &mut impl Write,
) -> Result<Duration, LoadError> {
    let mut starts = Vec::with_capacity(run.settings.threads);
    while let Some(ready) = readies.recv().await {
        starts.push(ready.map_err(LoadError::Connect)?);
    }
    if starts.len() < run.settings.threads {
        return Err(LoadError::Panicked);
    }
    let phases = Phases::new(Instant::now(), &run.settings);
    for start in starts {
        // A thread that has panicked is found when it is joined.
        let _ = start.send(phases);
    }
    let mut progress = Progress::new(run, phases, errors);
    select! {
        () = progress.show() => {}
        _ = signal::ctrl_c() => run.stop.cancel(),
    }
    progress.clear();
    Ok(Instant::now().min(phases.end).saturating_duration_since(phases.measure))
}

impl Phases {
    fn new(start: Instant, settings: &LoadSettings) -> Self {
        let after = |time: Instant, pause| time.checked_add(pause).unwrap_or(time);
        let measure = after(start, settings.warmup);
        Self { start, measure, end: after(measure, settings.duration) }
    }
}
