//! Measurements: the verdicts and latencies of a thread, and the hits that each key is admitted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::{CreationError, Histogram};

use crate::request::RequestError;

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
            Ok(true) => self.ok += 1,
            Ok(false) => self.over_limit += 1,
            Err(error) => {
                let (count, _) =
                    self.errors.entry(name(error.code)).or_insert_with(|| (0, error.to_string()));
                *count += 1;
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
        self.ended += other.ended;
        self.ok += other.ok;
        self.over_limit += other.over_limit;
        self.unsent += other.unsent;
        for (code, (more, message)) in &other.errors {
            let (count, _) = self.errors.entry(code.clone()).or_insert_with(|| (0, message.clone()));
            *count += more;
        }
        // Fails only if the bounds differ.
        let _ = self.latencies.add(&other.latencies);
    }

    /// Requests with a verdict.
    pub(super) const fn answered(&self) -> u64 {
        self.ok + self.over_limit
    }

    /// Requests without a verdict.
    pub(super) fn failed(&self) -> u64 {
        self.errors.values().map(|(count, _)| count).sum()
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

/// Counts of every key, warm-up included.
#[derive(Debug)]
pub(super) struct Admissions {
    keys: Vec<Key>,
    /// Hits of each request.
    hits: u64,
    /// Hits that a key may be admitted.
    limit: Option<u64>,
}

#[derive(Debug, Default)]
struct Key {
    passed: AtomicU64,
    denied: AtomicU64,
    /// Denials received while the admitted requests and those in flight together were below the limit.
    early: AtomicU32,
    /// Requests without a response, now or ever. The server may have admitted any of them.
    unanswered: AtomicU32,
}

/// Totals over all keys. Admissions are counted in hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AdmissionSummary {
    /// Keys with at least one response.
    pub(super) seen: u64,
    /// Hits admitted to all keys.
    pub(super) total: u64,
    /// Fewest hits admitted to a key with a response.
    pub(super) least: u64,
    /// Most hits admitted to a key.
    pub(super) most: u64,
    /// The key with the most hits.
    pub(super) key: usize,
    /// Keys admitted more than the limit.
    pub(super) keys_beyond: u64,
    /// Hits admitted beyond the limit.
    pub(super) beyond: u64,
    /// Hits denied although the limit had room for them.
    pub(super) denied_within: u64,
    /// Requests denied before the limit was reached, whether or not it was reached later.
    pub(super) denied_early: u64,
}

impl Admissions {
    /// Counts for `keys` keys with requests of `hits` hits, and an optional limit per key in hits.
    pub(super) fn new(keys: usize, hits: u64, limit: Option<u64>) -> Self {
        Self { keys: std::iter::repeat_with(Key::default).take(keys).collect(), hits, limit }
    }

    /// Records that a request is about to be sent.
    pub(super) fn sent(&self, key: usize) {
        if let Some(key) = self.keys.get(key) {
            key.unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the response to a request. A request without a response stays unanswered, as it may have been charged.
    pub(super) fn answered(&self, key: usize, passes: bool) {
        let Some(key) = self.keys.get(key) else { return };
        if passes {
            // Incremented first, so that other threads count the request twice rather than not at all.
            key.passed.fetch_add(1, Ordering::Relaxed);
            key.unanswered.fetch_sub(1, Ordering::Release);
            return;
        }
        key.denied.fetch_add(1, Ordering::Relaxed);
        // Whatever the server decided before this denial has been answered or is in flight.
        let unanswered = u64::from(key.unanswered.fetch_sub(1, Ordering::AcqRel).saturating_sub(1));
        let passed = key.passed.load(Ordering::Relaxed);
        if self.limit_requests().is_some_and(|due| passed + unanswered < due) {
            key.early.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests that a key may be admitted; a request is admitted whole or not at all.
    fn limit_requests(&self) -> Option<u64> {
        self.limit.map(|limit| limit / self.hits)
    }

    pub(super) fn summary(&self) -> AdmissionSummary {
        let mut sum = AdmissionSummary { least: u64::MAX, ..AdmissionSummary::default() };
        for (number, key) in self.keys.iter().enumerate() {
            let (passed, denied) = (key.passed.load(Ordering::Relaxed), key.denied.load(Ordering::Relaxed));
            let answered = passed + denied;
            if answered == 0 {
                continue;
            }
            let admitted = passed * self.hits;
            sum.seen += 1;
            sum.total += admitted;
            sum.least = sum.least.min(admitted);
            if admitted > sum.most {
                (sum.most, sum.key) = (admitted, number);
            }
            sum.denied_early += u64::from(key.early.load(Ordering::Relaxed));
            if let (Some(limit), Some(due)) = (self.limit, self.limit_requests()) {
                let beyond = admitted.saturating_sub(limit);
                sum.keys_beyond += u64::from(beyond > 0);
                sum.beyond += beyond;
                sum.denied_within += due.min(answered).saturating_sub(passed) * self.hits;
            }
        }
        sum.least = sum.least.min(sum.most);
        sum
    }
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

    fn summary(hits: u64, limit: Option<u64>) -> AdmissionSummary {
        let admissions = Admissions::new(5, hits, limit);
        let count = |key, passes| {
            admissions.sent(key);
            admissions.answered(key, passes);
        };
        // Requests of each key that passed and that were denied.
        for (key, (passed, denied)) in [(3, 0), (4, 9), (2, 9), (0, 0), (1, 1)].into_iter().enumerate() {
            (0..passed).for_each(|_| count(key, true));
            (0..denied).for_each(|_| count(key, false));
        }
        count(5, true);
        admissions.summary()
    }

    #[test]
    fn the_largest_and_the_smallest_count_are_found() {
        let expected =
            AdmissionSummary { seen: 4, total: 10, least: 1, most: 4, key: 1, ..AdmissionSummary::default() };
        assert_eq!(summary(1, None), expected);
    }

    #[test]
    fn hits_beyond_a_limit_and_denials_within_it_are_counted() {
        let three = summary(1, Some(3));
        // Key 1 has one too many, key 2 one too few; key 4 sent two and was granted one.
        assert_eq!((three.keys_beyond, three.beyond, three.denied_within), (1, 1, 2));
        let hits = summary(10, Some(35));
        assert_eq!((hits.most, hits.keys_beyond, hits.beyond, hits.denied_within), (40, 1, 5, 20));
    }

    #[test]
    fn the_summary_without_responses_is_empty() {
        assert_eq!(Admissions::new(3, 1, Some(1)).summary(), AdmissionSummary::default());
    }

    #[test]
    fn a_denial_is_early_only_if_nothing_in_flight_can_account_for_it() {
        let admissions = Admissions::new(1, 1, Some(3));
        (0..4).for_each(|_| admissions.sent(0));
        // The three others may have passed before it.
        admissions.answered(0, false);
        assert_eq!(admissions.summary().denied_early, 0);
        admissions.answered(0, false);
        assert_eq!(admissions.summary().denied_early, 1);
        admissions.answered(0, true);
        admissions.answered(0, true);
        assert_eq!((admissions.summary().denied_early, admissions.summary().denied_within), (1, 1));
        // A request without a response may have passed.
        admissions.sent(0);
        admissions.sent(0);
        admissions.answered(0, false);
        assert_eq!(admissions.summary().denied_early, 1);
    }
}
