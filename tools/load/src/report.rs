//! Output of a run: a progress line on the terminal, and the report with the totals of all threads, as text and as JSON.

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, sleep_until};

use crate::tally::{AdmissionSummary, Tally};
use crate::{LoadError, Phases, Run, settings::LoadSettings};

/// Reported quantiles of the latency, by name.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Settings of a run and its results.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) settings: LoadSettings,
    /// Length of the measurement.
    pub(super) measured: Duration,
    /// Measurements of all threads.
    pub(super) tally: Tally,
    /// Hits admitted to the keys.
    pub(super) keys: AdmissionSummary,
}

impl Report {
    pub(super) fn new(run: &Run, measured: Duration) -> Result<Self, LoadError> {
        let mut tally = Tally::new()?;
        for thread in &run.tallies {
            tally.add(&thread.lock());
        }
        let settings = run.settings.clone();
        let keys = run.admissions.summary();
        Ok(Self { settings, measured, tally, keys })
    }

    /// Verdicts per second.
    #[allow(clippy::float_arithmetic)] // For display only.
    pub(super) fn rate(&self) -> f64 {
        if self.measured.is_zero() {
            return 0.0;
        }
        (self.tally.answered() as f64 / self.measured.as_secs_f64() * 10.0).round() / 10.0
    }

    /// Quantiles of the latency and its maximum, in microseconds.
    pub(super) fn latencies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let latencies = &self.tally.latencies;
        let quantiles = QUANTILES.map(|(name, quantile)| (name, latencies.value_at_quantile(quantile)));
        quantiles.into_iter().chain([("max", latencies.max())])
    }

    /// The report as a JSON object.
    pub(super) fn json(&self) -> Value {
        let errors: Map<String, Value> =
            self.tally.errors.iter().map(|(code, (count, _))| (code.clone(), json!(count))).collect();
        let latencies: Map<String, Value> =
            self.latencies().map(|(name, micros)| (name.to_owned(), json!(micros))).collect();
        let keys = &self.keys;
        let mut admitted =
            json!({"total": keys.total, "least": keys.least, "most": keys.most, "most_key": keys.key});
        if let (Some(limit), Some(admitted)) = (self.settings.admitted_limit, admitted.as_object_mut()) {
            admitted.extend([
                ("limit".to_owned(), json!(limit)),
                ("keys_beyond".to_owned(), json!(keys.keys_beyond)),
                ("beyond".to_owned(), json!(keys.beyond)),
                ("denied_within".to_owned(), json!(keys.denied_within)),
                ("denied_early".to_owned(), json!(keys.denied_early)),
            ]);
        }
        json!({
            "seconds": self.measured.as_secs_f64(),
            "requests": self.tally.answered() + self.tally.failed(),
            "rate": self.rate(),
            "ok": self.tally.ok,
            "over_limit": self.tally.over_limit,
            "errors": errors,
            "unsent": self.tally.unsent,
            "latency_us": latencies,
            "keys": {"count": self.settings.keys, "seen": keys.seen, "admitted": admitted},
        })
    }

    /// Reasons for exit code 1.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        let unanswered = (self.tally.answered() == 0).then(|| {
            let first = self.tally.errors.iter().next();
            let first = first.map(|(code, (_, message))| format!(": {code}: {message}"));
            format!("no request was answered{}", first.unwrap_or_default())
        });
        let keys = &self.keys;
        let beyond = self.settings.admitted_limit.filter(|_| keys.keys_beyond > 0).map(|limit| {
            format!(
                "{} keys were admitted more than {limit} hits, {} hits too many in all; the most, {}, key {}",
                keys.keys_beyond, keys.beyond, keys.most, keys.key
            )
        });
        unanswered.into_iter().chain(beyond)
    }
}

/// Width of the longest bar in characters.
const BAR_CHARS: u64 = 40;

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (settings, tally) = (&report.settings, &report.tally);
    let targets: Vec<String> = settings.targets.iter().map(|target| format!("http://{target}")).collect();
    writeln!(out, "target      {}", targets.join(", "))?;
    let model = settings.rate.map_or("closed loop".to_owned(), |rate| format!("{rate} per second"));
    let (connections, streams) = (settings.connections, settings.streams);
    writeln!(out, "load        {connections} connections with {streams} streams, {model}")?;
    let all = tally.answered() + tally.failed();
    let (time, rate) = (report.measured, report.rate());
    writeln!(out, "requests    {all} in {time:.1?}, {rate:.0} answered per second")?;
    let mut row = |what: &str, count, why: &str| {
        let padding = if why.is_empty() { "" } else { "  " };
        writeln!(out, "  {what:<18} {count:>10}  {:>5} %{padding}{why}", percent(count, all))
    };
    row("ok", tally.ok, "")?;
    row("over limit", tally.over_limit, "")?;
    for (code, (count, message)) in &tally.errors {
        row(code, *count, message)?;
    }
    if tally.unsent > 0 {
        writeln!(out, "  never sent         {:>10}  no stream was free", tally.unsent)?;
    }
    write_latencies(out, report)?;
    write_keys(out, report)
}

fn write_latencies(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.tally.latencies.is_empty() {
        return Ok(());
    }
    let quantiles: Vec<String> =
        report.latencies().map(|(name, micros)| format!("{name} {}", time(micros))).collect();
    writeln!(out, "latency     {}", quantiles.join(", "))?;
    let rows = rows(&report.tally.latencies);
    let largest = rows.iter().map(|(_, count)| *count).max().unwrap_or_default();
    for (bound, count) in rows {
        let length = (count * BAR_CHARS).checked_div(largest).unwrap_or_default();
        let bar = "█".repeat(usize::try_from(length).unwrap_or_default());
        let share = percent(count, report.tally.latencies.len());
        let row = format!("  up to {:>7} {share:>5} % {bar}", time(bound));
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

fn write_keys(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (keys, count) = (&report.keys, report.settings.keys);
    writeln!(out, "keys        {} of {count} seen", keys.seen)?;
    let spread = format!("{} to {} a key, the most for key {}", keys.least, keys.most, keys.key);
    writeln!(out, "admitted    {} hits, {spread}", keys.total)?;
    if let Some(limit) = report.settings.admitted_limit {
        let (beyond, within, early) = (keys.beyond, keys.denied_within, keys.denied_early);
        let denied = format!("{within} denied within it, {early} requests denied early");
        writeln!(out, "limit       {limit} a key: {beyond} hits beyond it, {denied}")?;
    }
    Ok(())
}

/// Counts of latencies in buckets with upper bounds of 1, 2, 5, 10, 20, 50, … microseconds, from the first bucket that is
/// not empty to the last.
fn rows(latencies: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for step in latencies.iter_recorded() {
        let bound = bounds().find(|bound| *bound >= step.value_iterated_to()).unwrap_or(u64::MAX);
        let first = rows.last().map_or(bound, |(last, _)| last + 1);
        rows.extend(bounds().filter(|between| (first..=bound).contains(between)).map(|bound| (bound, 0)));
        if let Some((_, count)) = rows.last_mut() {
            *count += step.count_at_value();
        }
    }
    rows
}

/// Upper bounds of the buckets, up to 10,000 seconds.
fn bounds() -> impl Iterator<Item = u64> {
    (0..10).flat_map(|power| [1, 2, 5].map(|first: u64| first * 10_u64.pow(power)))
}

/// A duration in a readable unit.
fn time(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    let is_round = bounds().any(|bound| bound == micros);
    if micros < 1000 || is_round { format!("{time:?}") } else { format!("{time:.2?}") }
}

/// A percentage with one decimal.
fn percent(count: u64, all: u64) -> String {
    let permille = (u128::from(count) * 1000).checked_div(all.into()).unwrap_or_default();
    format!("{}.{}", permille / 10, permille % 10)
}

/// Interval between updates of the progress line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// Width of its bar in characters.
const PROGRESS_CHARS: u128 = 30;

/// A progress line on the terminal.
#[derive(Debug)]
pub(super) struct Progress<'a, W> {
    run: &'a Run,
    phases: Phases,
    out: &'a mut W,
    is_shown: bool,
    /// Time of the last update, and the requests that had ended by then.
    last: (Instant, u64),
}

impl<'a, W: Write> Progress<'a, W> {
    pub(super) fn new(run: &'a Run, phases: Phases, out: &'a mut W) -> Self {
        let is_shown = !run.settings.quiet && io::stderr().is_terminal();
        Self { run, phases, out, is_shown, last: (phases.start, 0) }
    }

    /// Updates the line until the end.
    pub(super) async fn show(&mut self) {
        while self.is_shown && self.phases.end.saturating_duration_since(Instant::now()) > UPDATE_INTERVAL {
            sleep(UPDATE_INTERVAL).await;
            self.draw();
        }
        sleep_until(self.phases.end.into()).await;
    }

    /// Erases the line.
    pub(super) fn clear(self) {
        if self.is_shown {
            // The line is cosmetic, so a closed terminal is no error.
            let _ = write!(self.out, "\r\x1b[2K").and_then(|()| self.out.flush());
        }
    }

    fn draw(&mut self) {
        let (mut ended, mut failed) = (0_u64, 0_u64);
        for tally in &self.run.tallies {
            let tally = tally.lock();
            ended += tally.ended;
            failed += tally.failed();
        }
        let now = Instant::now();
        let (before, ended_before) = std::mem::replace(&mut self.last, (now, ended));
        let rate = per_second(ended - ended_before, now.saturating_duration_since(before));
        let line = progress_line(
            now.saturating_duration_since(self.phases.start),
            self.phases.end.saturating_duration_since(self.phases.start),
            rate,
            failed,
        );
        let _ = write!(self.out, "\r\x1b[2K{line}").and_then(|()| self.out.flush());
    }
}

fn per_second(count: u64, time: Duration) -> u128 {
    (u128::from(count) * 1_000_000).checked_div(time.as_micros()).unwrap_or_default()
}

fn progress_line(passed: Duration, all: Duration, rate: u128, failed: u64) -> String {
    let done = (passed.as_micros() * PROGRESS_CHARS).checked_div(all.as_micros()).unwrap_or(PROGRESS_CHARS);
    let done = usize::try_from(done.min(PROGRESS_CHARS)).unwrap_or_default();
    let bar = format!("{:-<1$}", "#".repeat(done), PROGRESS_CHARS as usize);
    format!("[{bar}] {} of {} s, {rate} per second, {failed} errors", passed.as_secs(), all.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_has_every_row_between_the_first_and_the_last() {
        let mut latencies = Histogram::<u64>::new_with_bounds(1, 1_000_000, 3).expect("bounds");
        assert_eq!(rows(&latencies), []);
        for (micros, count) in [(90, 1), (100, 2), (101, 3), (900, 4), (1000, 5)] {
            latencies.record_n(micros, count).expect("within the bounds");
        }
        assert_eq!(rows(&latencies), [(100, 3), (200, 3), (500, 0), (1000, 9)]);
    }

    #[test]
    fn times_and_shares_are_short() {
        assert_eq!(
            [5, 999, 1000, 1234, 20_000, 3_600_000].map(time),
            ["5µs", "999µs", "1ms", "1.23ms", "20ms", "3.60s"]
        );
        assert_eq!(
            (percent(1, 3), percent(0, 0), percent(7, 7)),
            ("33.3".into(), "0.0".into(), "100.0".into())
        );
    }

    #[test]
    fn the_line_shows_time_rate_and_errors() {
        let line = progress_line(Duration::from_millis(2600), Duration::from_secs(8), 12_345, 7);
        assert_eq!(line, "[#########---------------------] 2 of 8 s, 12345 per second, 7 errors");
        assert_eq!(per_second(100, Duration::from_millis(200)), 500);
    }
}
