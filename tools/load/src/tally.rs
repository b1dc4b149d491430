//! Measurements of a thread.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::{CreationError, Histogram};

use super::error::RequestError;

/// Upper bound of the histogram, in microseconds: an hour.
const MAX_LATENCY_MICROS: u64 = 3_600_000_000;

/// Measurements of one thread, or of all.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Requests that ended, including the warm-up.
    pub(super) ended: u64,
    /// Requests that passed.
    pub(super) ok: u64,
    /// Requests that were over a limit.
    pub(super) over_limit: u64,
    /// Requests without a verdict, by gRPC code, each with the first message.
    pub(super) errors: BTreeMap<String, (u64, String)>,
    /// Microseconds until the verdict, or until the timeout: without timeouts, the slowest requests would make the server
    /// look fast.
    pub(super) latencies: Histogram<u64>,
    /// Requests that were due and never sent.
    pub(super) unsent: u64,
}

impl Tally {
    pub(super) fn new() -> Result<Self, CreationError> {
        let latencies = Histogram::new_with_bounds(1, MAX_LATENCY_MICROS, 3)?;
        Ok(Self { ended: 0, ok: 0, over_limit: 0, errors: BTreeMap::new(), latencies, unsent: 0 })
    }

    /// Counts the outcome of a request and its latency.
    pub(super) fn count(&mut self, outcome: Result<bool, RequestError>, latency: Duration) {
        match outcome {
            Ok(true) => self.ok = self.ok.saturating_add(1),
            Ok(false) => self.over_limit = self.over_limit.saturating_add(1),
            Err(error) => {
                let (count, _) =
                    self.errors.entry(name(error.code)).or_insert_with(|| (0, error.to_string()));
                *count = count.saturating_add(1);
                if !error.is_timeout {
                    return;
                }
            }
        }
        self.latencies
            .saturating_record(u64::try_from(latency.as_micros()).unwrap_or(MAX_LATENCY_MICROS).max(1));
    }

    /// Adds the measurements of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        self.ended = self.ended.saturating_add(other.ended);
        self.ok = self.ok.saturating_add(other.ok);
        self.over_limit = self.over_limit.saturating_add(other.over_limit);
        self.unsent = self.unsent.saturating_add(other.unsent);
        for (code, (more, message)) in &other.errors {
            let (count, _) = self.errors.entry(code.clone()).or_insert_with(|| (0, message.clone()));
            *count = count.saturating_add(*more);
        }
        // Fails only if the bounds differ.
        let _ = self.latencies.add(&other.latencies);
    }

    /// Requests with a verdict.
    pub(super) const fn answered(&self) -> u64 {
        self.ok.saturating_add(self.over_limit)
    }

    /// Requests without a verdict.
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
    fn percentiles_cover_all_threads() {
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
    fn errors_are_counted_by_code_and_only_timeouts_have_a_latency() {
        let mut tally = Tally::new().expect("bounds");
        tally.count(Err(RequestError::timed_out(Duration::from_secs(2))), Duration::from_secs(2));
        tally.count(Err(RequestError::timed_out(Duration::from_secs(3))), Duration::from_secs(2));
        tally.count(Err(RequestError::malformed("strange")), Duration::ZERO);
        let mut sum = tally.clone();
        sum.add(&tally);
        let errors: Vec<_> =
            sum.errors.iter().map(|(code, (count, message))| (&**code, *count, &**message)).collect();
        assert_eq!(errors, [("DEADLINE_EXCEEDED", 4, "no response within 2s"), ("INTERNAL", 2, "strange")]);
        assert_eq!((sum.failed(), sum.answered(), sum.latencies.len()), (6, 0, 4));
        assert!(sum.latencies.min() >= 1_998_000);
    }

    #[test]
    fn a_latency_beyond_the_bounds_counts_as_the_maximum() {
        let mut tally = Tally::new().expect("bounds");
        tally.count(Ok(true), Duration::MAX);
        assert!(tally.latencies.max() >= MAX_LATENCY_MICROS);
    }
}
