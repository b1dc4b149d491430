//! A progress line on the terminal.

use std::{
    io::{self, IsTerminal as _, Write},
    time::{Duration, Instant},
};

use tokio::time::{sleep, sleep_until};

use super::{Phases, Run};

/// Interval between updates of the line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// Width of the bar in characters.
const BAR_CHARS: u128 = 30;

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
            ended = ended.saturating_add(tally.ended);
            failed = failed.saturating_add(tally.failed());
        }
        let now = Instant::now();
        let (before, ended_before) = std::mem::replace(&mut self.last, (now, ended));
        let rate = per_second(ended.saturating_sub(ended_before), now.saturating_duration_since(before));
        let line = line(
            now.saturating_duration_since(self.phases.start),
            self.phases.end.saturating_duration_since(self.phases.start),
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
    let done = passed.as_micros().saturating_mul(BAR_CHARS).checked_div(all.as_micros()).unwrap_or(BAR_CHARS);
    let done = usize::try_from(done.min(BAR_CHARS)).unwrap_or_default();
    let bar = format!("{:-<1$}", "#".repeat(done), BAR_CHARS as usize);
    format!("[{bar}] {} of {} s, {rate} per second, {failed} errors", passed.as_secs(), all.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_time_rate_and_errors() {
        let line = line(Duration::from_millis(2600), Duration::from_secs(8), 12_345, 7);
        assert_eq!(line, "[#########---------------------] 2 of 8 s, 12345 per second, 7 errors");
        assert_eq!(per_second(100, Duration::from_millis(200)), 500);
    }
}
