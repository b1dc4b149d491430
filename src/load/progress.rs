//! How far it is, on a line of the terminal.

use std::{
    io::{self, IsTerminal as _, Write},
    time::{Duration, Instant},
};

use tokio::time::{sleep, sleep_until};

use super::{Job, Span};

/// How often the line is drawn.
const EVERY: Duration = Duration::from_millis(200);

/// Characters of the bar.
const WIDTH: u128 = 30;

/// The line.
#[derive(Debug)]
pub(super) struct Progress<'a, W> {
    job: &'a Job,
    span: Span,
    out: &'a mut W,
    is_shown: bool,
    /// When it was drawn last, and how many requests had ended.
    last: (Instant, u64),
}

impl<'a, W: Write> Progress<'a, W> {
    pub(super) fn new(job: &'a Job, span: Span, out: &'a mut W) -> Self {
        let is_shown = !job.settings.quiet && io::stderr().is_terminal();
        Self { job, span, out, is_shown, last: (span.start, 0) }
    }

    /// Shows it until the end.
    pub(super) async fn show(&mut self) {
        while self.is_shown && self.span.end.saturating_duration_since(Instant::now()) > EVERY {
            sleep(EVERY).await;
            self.draw();
        }
        sleep_until(self.span.end.into()).await;
    }

    /// Leaves the line as if nothing had been there.
    pub(super) fn clear(self) {
        if self.is_shown {
            // Nobody misses it.
            let _ = write!(self.out, "\r\x1b[2K").and_then(|()| self.out.flush());
        }
    }

    fn draw(&mut self) {
        let (mut ended, mut failed) = (0_u64, 0_u64);
        for tally in &self.job.tallies {
            let tally = tally.lock();
            ended = ended.saturating_add(tally.ended);
            failed = failed.saturating_add(tally.failed());
        }
        let now = Instant::now();
        let (before, ended_before) = std::mem::replace(&mut self.last, (now, ended));
        let rate = per_second(ended.saturating_sub(ended_before), now.saturating_duration_since(before));
        let line = line(
            now.saturating_duration_since(self.span.start),
            self.span.end.saturating_duration_since(self.span.start),
            rate,
            failed,
        );
        let _ = write!(self.out, "\r\x1b[2K{line}").and_then(|()| self.out.flush());
    }
}

fn per_second(count: u64, time: Duration) -> u128 {
    u128::from(count).saturating_mul(1_000_000).checked_div(time.as_micros()).unwrap_or_default()
}

fn line(passed: Duration, all: Duration, rate: u128, failed: u64) -> String {
    let done = passed.as_micros().saturating_mul(WIDTH).checked_div(all.as_micros()).unwrap_or(WIDTH);
    let done = usize::try_from(done.min(WIDTH)).unwrap_or_default();
    let bar = format!("{:-<1$}", "#".repeat(done), WIDTH as usize);
    format!("[{bar}] {} of {} s, {rate} per second, {failed} errors", passed.as_secs(), all.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_time_rate_and_errors() {
        let line = line(Duration::from_millis(2600), Duration::from_secs(8), 12_345, 7);
        assert_eq!(line, "[#########---------------------] 2 of 8 s, 12345 per second, 7 errors");
        assert_eq!(per_second(100, Duration::from_millis(200)), 500);
    }
}
