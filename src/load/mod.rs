//! `tollgate load`: puts load on any server of the rate-limit service, and measures what comes back.
//!
//! ```text
//! main ── starts ──> threads: each a runtime of its own, with its share of the connections
//!   │                   └─ connections: HTTP/2, with so many streams each
//!   └─ progress             └─ stream: pace (when) ─> keys (for whom) ─> request ─> answer ─> tally
//! ```
//!
//! - `request` knows the messages, and writes a request by filling a key's number into a prepared one; `connection`
//!   sends it. Both cost little, so that what is measured is the server.
//! - `pace` says when requests are due, and `timer` waits for that more precisely than a runtime does; `zipf` draws
//!   their keys.
//! - `tally` holds what a thread measured, `admitted` what each key was granted. `report` sums them up, for `table` to
//!   show.

mod admitted;
mod connection;
mod pace;
mod progress;
mod report;
mod request;
mod stream;
mod table;
mod tally;
mod thread;
mod timer;
mod zipf;

use std::{
    io::{self, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use hdrhistogram::CreationError;
use parking_lot::Mutex;
use tokio::{runtime::Builder, select, signal, sync::mpsc};
use tokio_util::sync::CancellationToken;

use self::{
    admitted::Admitted, connection::Failure, progress::Progress, report::Report, request::Requests,
    tally::Tally, thread::Ready, zipf::Keys,
};
use crate::settings::LoadSettings;

/// What all threads share.
#[derive(Debug)]
struct Job {
    settings: LoadSettings,
    requests: Requests,
    keys: Keys,
    admitted: Admitted,
    /// One for each thread; its lock is its own but for a moment now and then.
    tallies: Vec<Mutex<Tally>>,
    /// Cancelled to end before the time: nothing more is sent, and what is in flight is waited for.
    stop: CancellationToken,
}

/// When requests are sent, and when they are measured.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Instant,
    measure: Instant,
    end: Instant,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("cannot connect to {0}")]
    Connect(Failure),
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    #[error("cannot keep latencies: {0}")]
    Histogram(#[from] CreationError),
    #[error("a thread that asks broke down")]
    Broken,
}

/// Makes the load and writes the report to `out`; problems and progress go to `errors`. Answers whether the server
/// answered at all and no key was admitted more than it may be.
///
/// # Errors
/// When nobody reads the output.
pub fn run(settings: &LoadSettings, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    match measure(settings, errors) {
        Ok(report) => {
            match settings.json {
                true => writeln!(out, "{}", report.json())?,
                false => table::write(out, &report)?,
            }
            for complaint in report.complaints() {
                writeln!(errors, "{complaint}")?;
            }
            Ok(report.complaints().next().is_none())
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            Ok(false)
        }
    }
}

fn measure(settings: &LoadSettings, errors: &mut impl Write) -> Result<Report, LoadError> {
    let tallies: Result<_, _> = (0..settings.threads).map(|_| Tally::new().map(Mutex::new)).collect();
    let job = Arc::new(Job {
        settings: settings.clone(),
        requests: Requests::new(settings),
        keys: Keys::new(settings.keys, settings.zipf),
        admitted: Admitted::new(settings.keys, settings.hits.get().into(), settings.admitted_limit),
        tallies: tallies?,
        stop: CancellationToken::new(),
    });
    let (ready, mut readies) = mpsc::unbounded_channel();
    let started: io::Result<Vec<_>> =
        (0..settings.threads).map(|thread| thread::start(thread, Arc::clone(&job), ready.clone())).collect();
    let threads = started?;
    drop(ready);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(watch(&job, &mut readies, errors))?;
    for thread in threads {
        thread.join().map_err(|_| LoadError::Broken)?;
    }
    Report::new(&job, measured)
}

/// Starts the threads together and stays until the time is over, or the user has had enough. Answers how long was
/// measured.
async fn watch(
    job: &Job,
    readies: &mut mpsc::UnboundedReceiver<Ready>,
    errors: &mut impl Write,
) -> Result<Duration, LoadError> {
    let mut starts = Vec::with_capacity(job.settings.threads);
    while let Some(ready) = readies.recv().await {
        starts.push(ready.map_err(LoadError::Connect)?);
    }
    if starts.len() < job.settings.threads {
        return Err(LoadError::Broken);
    }
    let span = Span::new(Instant::now(), &job.settings);
    for start in starts {
        // A thread that is gone is found out when it is joined.
        let _ = start.send(span);
    }
    let mut progress = Progress::new(job, span, errors);
    select! {
        () = progress.show() => {}
        _ = signal::ctrl_c() => job.stop.cancel(),
    }
    progress.clear();
    Ok(Instant::now().min(span.end).saturating_duration_since(span.measure))
}

impl Span {
    fn new(start: Instant, settings: &LoadSettings) -> Self {
        let after = |time: Instant, pause| time.checked_add(pause).unwrap_or(time);
        let measure = after(start, settings.warmup);
        Self { start, measure, end: after(measure, settings.duration) }
    }
}
