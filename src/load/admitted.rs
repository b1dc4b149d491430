//! What each key was granted, so that over-admission is measured and not assumed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The requests of every key, warm-up included.
#[derive(Debug)]
pub(super) struct Admitted {
    keys: Vec<Key>,
    /// Hits of each request.
    hits: u64,
    /// Hits that each key may be admitted.
    limit: Option<u64>,
}

#[derive(Debug, Default)]
struct Key {
    passed: AtomicU64,
    denied: AtomicU64,
    /// Denials that came while all that passed and all that might still pass was less than the limit.
    early: AtomicU32,
    /// Requests whose answer did not come yet, or never will. Any of them may have passed already, for all that is
    /// known here.
    unknown: AtomicU32,
}

/// What came of it. Admissions are hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Keys that had an answer.
    pub(super) seen: u64,
    /// Hits of all keys together.
    pub(super) total: u64,
    /// Hits of the key seen that was admitted the least.
    pub(super) least: u64,
    /// Hits of the key that was admitted the most.
    pub(super) most: u64,
    /// That key.
    pub(super) key: usize,
    /// Keys that were admitted more than the limit.
    pub(super) keys_beyond: u64,
    /// Hits that were admitted beyond the limit.
    pub(super) beyond: u64,
    /// Hits that were denied although they would have been within the limit.
    pub(super) denied_within: u64,
    /// Requests that were denied before the limit was reached, whatever became of it later.
    pub(super) denied_early: u64,
}

impl Admitted {
    /// For so many keys, requests of so many hits each, and perhaps a limit for each key.
    pub(super) fn new(keys: usize, hits: u64, limit: Option<u64>) -> Self {
        Self { keys: std::iter::repeat_with(Key::default).take(keys).collect(), hits, limit }
    }

    /// A request is about to be sent.
    pub(super) fn sent(&self, key: usize) {
        if let Some(key) = self.keys.get(key) {
            key.unknown.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request that was sent has its answer. One that is never answered may have passed, so nothing is said of it.
    pub(super) fn answered(&self, key: usize, passes: bool) {
        let Some(key) = self.keys.get(key) else { return };
        if passes {
            // First, so that other threads see the request twice rather than not at all.
            key.passed.fetch_add(1, Ordering::Relaxed);
            key.unknown.fetch_sub(1, Ordering::Release);
            return;
        }
        key.denied.fetch_add(1, Ordering::Relaxed);
        // What was decided before this denial has been answered, or is on its way.
        let unknown = u64::from(key.unknown.fetch_sub(1, Ordering::AcqRel).saturating_sub(1));
        let passed = key.passed.load(Ordering::Relaxed);
        if self.due().is_some_and(|due| passed.saturating_add(unknown) < due) {
            key.early.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests that each key may be admitted: only whole ones are.
    fn due(&self) -> Option<u64> {
        self.limit.map(|limit| limit.checked_div(self.hits).unwrap_or_default())
    }

    /// Sums it up.
    pub(super) fn summary(&self) -> Summary {
        let mut sum = Summary { least: u64::MAX, ..Summary::default() };
        for (number, key) in self.keys.iter().enumerate() {
            let (passed, denied) = (key.passed.load(Ordering::Relaxed), key.denied.load(Ordering::Relaxed));
            let asked = passed.saturating_add(denied);
            if asked == 0 {
                continue;
            }
            let admitted = passed.saturating_mul(self.hits);
            sum.seen = sum.seen.saturating_add(1);
            sum.total = sum.total.saturating_add(admitted);
            sum.least = sum.least.min(admitted);
            if admitted > sum.most {
                (sum.most, sum.key) = (admitted, number);
            }
            sum.denied_early = sum.denied_early.saturating_add(key.early.load(Ordering::Relaxed).into());
            if let (Some(limit), Some(due)) = (self.limit, self.due()) {
                let beyond = admitted.saturating_sub(limit);
                sum.keys_beyond = sum.keys_beyond.saturating_add(u64::from(beyond > 0));
                sum.beyond = sum.beyond.saturating_add(beyond);
                let missing = due.min(asked).saturating_sub(passed).saturating_mul(self.hits);
                sum.denied_within = sum.denied_within.saturating_add(missing);
            }
        }
        sum.least = sum.least.min(sum.most);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(hits: u64, limit: Option<u64>) -> Summary {
        let admitted = Admitted::new(5, hits, limit);
        let count = |key, passes| {
            admitted.sent(key);
            admitted.answered(key, passes);
        };
        // Of each key, how often it passed and was denied.
        for (key, (passed, denied)) in [(3, 0), (4, 9), (2, 9), (0, 0), (1, 1)].into_iter().enumerate() {
            (0..passed).for_each(|_| count(key, true));
            (0..denied).for_each(|_| count(key, false));
        }
        count(5, true);
        admitted.summary()
    }

    #[test]
    fn the_largest_and_the_smallest_count_are_found() {
        let expected = Summary { seen: 4, total: 10, least: 1, most: 4, key: 1, ..Summary::default() };
        assert_eq!(summary(1, None), expected);
    }

    #[test]
    fn what_is_beyond_a_limit_and_what_was_denied_within_it_is_counted() {
        let three = summary(1, Some(3));
        // Key 1 has one too many, key 2 one too few; key 4 asked for two and was granted one.
        assert_eq!((three.keys_beyond, three.beyond, three.denied_within), (1, 1, 2));
        let hits = summary(10, Some(35));
        assert_eq!((hits.most, hits.keys_beyond, hits.beyond, hits.denied_within), (40, 1, 5, 20));
    }

    #[test]
    fn without_an_answer_there_is_nothing_to_sum_up() {
        assert_eq!(Admitted::new(3, 1, Some(1)).summary(), Summary::default());
    }

    #[test]
    fn a_denial_is_early_only_if_nothing_in_flight_can_account_for_it() {
        let admitted = Admitted::new(1, 1, Some(3));
        (0..4).for_each(|_| admitted.sent(0));
        // The three others may have passed before it.
        admitted.answered(0, false);
        assert_eq!(admitted.summary().denied_early, 0);
        admitted.answered(0, false);
        assert_eq!(admitted.summary().denied_early, 1);
        admitted.answered(0, true);
        admitted.answered(0, true);
        assert_eq!((admitted.summary().denied_early, admitted.summary().denied_within), (1, 1));
        // What is never answered may have passed.
        admitted.sent(0);
        admitted.sent(0);
        admitted.answered(0, false);
        assert_eq!(admitted.summary().denied_early, 1);
    }
}
