//! Whole copies of overrides, by the name that the source of a store's overrides has meanwhile.
//!
//! - `copying:TIME:ID:CHANGES`: an instance has begun a copy at that time, and has stored this number of changes. Each
//!   step names the step before it, so that a copy does not continue in a store that has lost one in a failover.
//! - `failed:TIME:COUNT`: at that time, this number of copies in a row had failed.
//!
//! Times are by the store's clock, in milliseconds since 1970. Instances of former releases take any name with the first word
//! `copying` for a copy in progress, and any other for that of another state.

use std::time::Duration;

/// Time after which a copy is begun anew unless its instance has ended it: longer than one takes.
const MAX_COPY_TIME: Duration = Duration::from_secs(60);

/// Longest time between two attempts.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

const COPYING: &str = "copying";
const FAILED: &str = "failed";

/// Whether a whole copy may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Yes, after this number of failed ones in a row.
    Ready { failures: u32 },
    /// An instance makes one.
    InProgress,
    /// This number of them has failed, and the next attempt is later.
    Paused { failures: u32 },
}

impl Readiness {
    /// Returns the readiness of a store whose overrides have this source.
    pub(super) fn of(source: &str, now_ms: u64) -> Self {
        let mut words = source.split(':');
        let state = words.next();
        let at_ms = words.next().and_then(|word| word.parse::<u64>().ok());
        // A time of the future is from before a clock was set back.
        let age = at_ms.and_then(|at| now_ms.checked_sub(at)).map(Duration::from_millis);
        match (state, age) {
            (Some(COPYING), Some(age)) if age < MAX_COPY_TIME => Self::InProgress,
            (Some(FAILED), age) => {
                let failures = words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
                match age {
                    Some(age) if age < pause_after(failures) => Self::Paused { failures },
                    _ => Self::Ready { failures },
                }
            }
            _ => Self::Ready { failures: 0 },
        }
    }
}

/// Pause after the last of several failures in a row. Between a failure and its record is about a second.
fn pause_after(failures: u32) -> Duration {
    let doubled = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(doubled.saturating_sub(1)).min(MAX_RETRY_INTERVAL)
}

/// A whole copy that this instance has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WholeCopy {
    began_ms: u64,
    /// Distinguishes copies that begin at the same time.
    id: u64,
    /// Failed ones before it.
    failures: u32,
}

impl WholeCopy {
    pub(super) fn new(began_ms: u64, failures: u32) -> Self {
        Self { began_ms, id: fastrand::u64(..), failures }
    }

    /// Name of the source once this number of changes is stored.
    pub(super) fn after(&self, changes: usize) -> String {
        let Self { began_ms, id, .. } = self;
        format!("{COPYING}:{began_ms}:{id:x}:{changes}")
    }

    /// Whether the source names a step of this copy.
    pub(super) fn has_named(&self, source: &str) -> bool {
        let own = self.after(0);
        let stem = |name: &str| name.rsplit_once(':').map(|(stem, _)| stem.to_owned());
        stem(source).is_some() && stem(source) == stem(&own)
    }

    /// Name of the source after its failure.
    pub(super) fn failed(&self, now_ms: u64) -> String {
        format!("{FAILED}:{now_ms}:{}", self.failures.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_000_000;

    #[test]
    fn a_copy_that_was_begun_is_left_to_its_instance_for_a_minute() {
        let copy = WholeCopy::new(NOW_MS, 0);
        // The second is that of a former release.
        for began in [copy.after(0), copy.after(2_250), format!("copying:{NOW_MS}:abc")] {
            let at = |now_ms| Readiness::of(&began, now_ms);
            assert_eq!([at(NOW_MS), at(NOW_MS + 59_999)], [Readiness::InProgress; 2]);
            // After it, or by a clock that was set back.
            assert_eq!([at(NOW_MS + 60_000), at(NOW_MS - 1)], [Readiness::Ready { failures: 0 }; 2]);
        }
        for other in ["", "us-east:abc:0", "copying", "copying::"] {
            assert_eq!(Readiness::of(other, NOW_MS), Readiness::Ready { failures: 0 }, "{other}");
        }
    }

    #[test]
    fn each_failure_doubles_the_pause_until_the_next_attempt() {
        for (failures, pause_ms) in (1..).zip([0, 1_000, 3_000, 7_000, 15_000, 31_000, 60_000, 60_000]) {
            let failed = WholeCopy::new(NOW_MS, failures - 1).failed(NOW_MS);
            let at = |after_ms: u64| Readiness::of(&failed, NOW_MS + after_ms);
            assert_eq!(at(pause_ms), Readiness::Ready { failures }, "{pause_ms}");
            if pause_ms > 0 {
                assert_eq!(at(pause_ms - 1), Readiness::Paused { failures }, "{pause_ms}");
            }
        }
        assert_eq!(pause_after(u32::MAX), MAX_RETRY_INTERVAL);
        let of_the_future = Readiness::of("failed:1000001:9", NOW_MS);
        assert_eq!(of_the_future, Readiness::Ready { failures: 9 });
    }

    #[test]
    fn steps_of_a_copy_have_different_names_that_are_its_own() {
        let [one, other] = [0, 0].map(|failures| WholeCopy::new(NOW_MS, failures));
        assert_ne!(one.after(0), one.after(250));
        for changes in [0, 250] {
            assert!(one.has_named(&one.after(changes)) && !one.has_named(&other.after(changes)));
        }
        assert!(!one.has_named("") && !one.has_named("us-east:abc:0") && !one.has_named(&one.failed(NOW_MS)));
    }
}
