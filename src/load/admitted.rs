//! What each key was granted, so that over-admission is measured and not assumed.

use std::sync::atomic::{AtomicU64, Ordering};

/// The requests of every key, warm-up included.
#[derive(Debug)]
pub(super) struct Admitted {
    keys: Vec<Key>,
}

#[derive(Debug, Default)]
struct Key {
    passed: AtomicU64,
    denied: AtomicU64,
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
}

impl Admitted {
    pub(super) fn new(keys: usize) -> Self {
        Self { keys: std::iter::repeat_with(Key::default).take(keys).collect() }
    }

    pub(super) fn count(&self, key: usize, passes: bool) {
        if let Some(key) = self.keys.get(key) {
            let counter = if passes { &key.passed } else { &key.denied };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sums it up, for requests of so many hits each under a limit for each key.
    pub(super) fn summary(&self, hits: u64, limit: Option<u64>) -> Summary {
        let mut sum = Summary { least: u64::MAX, ..Summary::default() };
        for (number, key) in self.keys.iter().enumerate() {
            let (passed, denied) = (key.passed.load(Ordering::Relaxed), key.denied.load(Ordering::Relaxed));
            let asked = passed.saturating_add(denied);
            if asked == 0 {
                continue;
            }
            let admitted = passed.saturating_mul(hits);
            sum.seen = sum.seen.saturating_add(1);
            sum.total = sum.total.saturating_add(admitted);
            sum.least = sum.least.min(admitted);
            if admitted > sum.most {
                (sum.most, sum.key) = (admitted, number);
            }
            if let Some(limit) = limit {
                let beyond = admitted.saturating_sub(limit);
                sum.keys_beyond = sum.keys_beyond.saturating_add(u64::from(beyond > 0));
                sum.beyond = sum.beyond.saturating_add(beyond);
                // Only whole requests are admitted.
                let due = limit.checked_div(hits).unwrap_or_default().min(asked);
                let missing = due.saturating_sub(passed).saturating_mul(hits);
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
        let admitted = Admitted::new(5);
        // Of each key, how often it passed and was denied.
        for (key, (passed, denied)) in [(3, 0), (4, 9), (2, 9), (0, 0), (1, 1)].into_iter().enumerate() {
            (0..passed).for_each(|_| admitted.count(key, true));
            (0..denied).for_each(|_| admitted.count(key, false));
        }
        admitted.count(5, true);
        admitted.summary(hits, limit)
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
        assert_eq!(Admitted::new(3).summary(1, Some(1)), Summary::default());
    }
}
