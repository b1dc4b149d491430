//! What was measured.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::{CreationError, Histogram};

use super::connection::Failure;

/// The longest latency that is told apart from longer ones, in microseconds: an hour.
const LONGEST: u64 = 3_600_000_000;

/// What one thread measured, or all of them.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Requests that ended, before the measurement too.
    pub(super) ended: u64,
    /// Requests that passed.
    pub(super) ok: u64,
    /// Requests that were over a limit.
    pub(super) over_limit: u64,
    /// Requests that have no verdict, by gRPC code, each with the first message.
    pub(super) errors: BTreeMap<String, (u64, String)>,
    /// Microseconds until a verdict, or until it was no longer waited for. Without the latter the slowest requests would
    /// make the server look fast.
    pub(super) latencies: Histogram<u64>,
    /// Requests that were due and never sent.
    pub(super) unsent: u64,
}

impl Tally {
    pub(super) fn new() -> Result<Self, CreationError> {
        let latencies = Histogram::new_with_bounds(1, LONGEST, 3)?;
        Ok(Self { ended: 0, ok: 0, over_limit: 0, errors: BTreeMap::new(), latencies, unsent: 0 })
    }

    /// Counts what came of a request, and after how long.
    pub(super) fn count(&mut self, outcome: Result<bool, Failure>, latency: Duration) {
        match outcome {
            Ok(true) => self.ok = self.ok.saturating_add(1),
            Ok(false) => self.over_limit = self.over_limit.saturating_add(1),
            Err(failure) => {
                let (count, _) =
                    self.errors.entry(name(failure.code)).or_insert_with(|| (0, failure.to_string()));
                *count = count.saturating_add(1);
                if !failure.is_late {
                    return;
                }
            }
        }
        self.latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LONGEST).max(1));
    }

    /// Adds what another thread measured.
    pub(super) fn add(&mut self, other: &Self) {
        self.ended = self.ended.saturating_add(other.ended);
        self.ok = self.ok.saturating_add(other.ok);
        self.over_limit = self.over_limit.saturating_add(other.over_limit);
        self.unsent = self.unsent.saturating_add(other.unsent);
        for (code, (more, message)) in &other.errors {
            let (count, _) = self.errors.entry(code.clone()).or_insert_with(|| (0, message.clone()));
            *count = count.saturating_add(*more);
        }
        // Fails only where bounds differ.
        let _ = self.latencies.add(&other.latencies);
    }

    /// Requests with a verdict.
    pub(super) const fn answered(&self) -> u64 {
        self.ok.saturating_add(self.over_limit)
    }

    /// Requests without one.
    pub(super) fn failed(&self) -> u64 {
        self.errors.values().fold(0, |sum, (count, _)| sum.saturating_add(*count))
    }
}

/// A code's name in gRPC, such as `DEADLINE_EXCEEDED`.
fn name(code: tonic::Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_threads() {
        let mut sum = Tally::new().expect("bounds");
        for thread in 0..4 {
            let mut tally = Tally::new().expect("bounds");
            for at in 1..=250_u64 {
                tally.count(Ok(at % 2 == 0), Duration::from_micros(at * 4 - thread));
            }
            sum.add(&tally);
        }
        assert_eq!((sum.ok, sum.over_limit, sum.answered()), (500, 500, 1000));
        let at = |quantile| sum.latencies.value_at_quantile(quantile);
        assert_eq!((at(0.5), at(0.9), at(0.99), at(0.999), sum.latencies.max()), (500, 900, 990, 999, 1000));
    }

    #[test]
    fn errors_are_counted_by_their_codes_and_only_those_that_took_too_long_have_a_latency() {
        let mut tally = Tally::new().expect("bounds");
        tally.count(Err(Failure::late(Duration::from_secs(2))), Duration::from_secs(2));
        tally.count(Err(Failure::late(Duration::from_secs(3))), Duration::from_secs(2));
        tally.count(Err(Failure::garbled("strange")), Duration::ZERO);
        let mut sum = tally.clone();
        sum.add(&tally);
        let errors: Vec<_> =
            sum.errors.iter().map(|(code, (count, message))| (&**code, *count, &**message)).collect();
        assert_eq!(errors, [("DEADLINE_EXCEEDED", 4, "no answer within 2s"), ("INTERNAL", 2, "strange")]);
        assert_eq!((sum.failed(), sum.answered(), sum.latencies.len()), (6, 0, 4));
        assert!(sum.latencies.min() >= 1_998_000);
    }

    #[test]
    fn a_latency_beyond_all_bounds_is_the_longest() {
        let mut tally = Tally::new().expect("bounds");
        tally.count(Ok(true), Duration::MAX);
        assert!(tally.latencies.max() >= LONGEST);
    }
}
