//! Last verdicts of the counters in use, from which an instance starts when Redis does not decide.

use std::array;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tollgate_core::RecordId;
use tollgate_core::algorithm::{LastVerdict, Verdict};
use tollgate_core::clock::{Clock, Timestamp};

use super::two_generation_map::RecentValues;
use crate::request::{TagRequest, Verdicts};
use crate::{CachePadded, key::CellKey};

/// A power of two, so that the upper bits of a hash select the shard.
const SHARDS: usize = 64;

/// Bits of a hash below those that select the shard.
const SHARD_SHIFT: u32 = u64::BITS - SHARDS.trailing_zeros();

/// Capacity of one generation of a shard: that of a table with 2,048 places. All shards together keep 229,376 counters at
/// 48 bytes, and take at most 13 MB.
const MAX_GENERATION_ENTRIES: usize = 1_792;

/// Part of a limit, as a divisor, up to which a counter is not remembered: as much may pass too often.
const MINOR_PART: u64 = 16;

/// Time in microseconds after which the time of the latest verdict is updated: it is shared by all workers.
const LAST_REPLY_STEP: u64 = 100_000;

/// Time in microseconds by which a verdict is older than another only if the clock of the servers was set back.
const MAX_REORDERING: u64 = 5_000_000;

/// Difference in microseconds from which the clock of the servers is followed; a smaller one may be the time of a reply.
const MIN_CLOCK_SHIFT: u64 = 50_000;

/// Last verdicts of counters, shared by the workers of an instance; clones share it.
///
/// Counters of which little was used are not kept, nor are permits of concurrency limits, which end with their requests.
/// A counter is identified by a hash of 64 bits.
#[derive(Clone, Debug)]
pub struct LastVerdicts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    hasher: RandomState,
    shards: [CachePadded<Mutex<Shard>>; SHARDS],
    /// Whether there was ever an entry: while none of the limits is used much, verdicts take no lock.
    has_entries: AtomicBool,
    /// Time of the latest verdict, in microseconds since the epoch, by the clock of the servers.
    last_reply_at: AtomicU64,
    /// Microseconds by which that clock is ahead of this machine's.
    clock_shift: Arc<AtomicI64>,
}

type Shard = RecentValues<LastVerdict, MAX_GENERATION_ENTRIES>;

impl Default for LastVerdicts {
    fn default() -> Self {
        let shards = array::from_fn(|_| CachePadded(Mutex::default()));
        Self(Arc::new(Shared {
            hasher: RandomState::default(),
            shards,
            has_entries: AtomicBool::new(false),
            last_reply_at: AtomicU64::new(0),
            clock_shift: Arc::default(),
        }))
    }
}

impl LastVerdicts {
    /// The clock of the servers, as far as it differs from this machine's: counters continue with it.
    pub fn clock(&self) -> Clock {
        Clock::Shifted(Arc::clone(&self.0.clock_shift))
    }

    /// Records the verdicts of a request, with the tokens charged ahead for its checks.
    pub(super) fn record(&self, request: &TagRequest, verdicts: &Verdicts, prefetched: &[u32]) {
        for (at, ((cell, check), (_, verdict))) in request.checks_with_cells().zip(verdicts).enumerate() {
            let prefetched = prefetched.get(at).copied().unwrap_or_default();
            // The times of a verdict under a ban are those of the ban.
            if verdict.ban.is_some_and(|ban| ban.is_enforced) {
                continue;
            }
            if check.policy.algorithm().holds_permits() {
                continue;
            }
            let is_minor = is_minor(verdict, prefetched) && !check.hits.is_refund();
            if is_minor && !self.0.has_entries.load(Ordering::Relaxed) {
                continue;
            }
            let hash = self.hash(&cell.key, check.record);
            let Some(shard) = self.shard(hash) else { continue };
            let last = || check.policy.last_verdict(verdict, prefetched);
            if is_minor {
                // Another instance may have refunded or reset what a kept verdict states.
                if let Some(known) = shard.lock().get(hash) {
                    follow(known, last());
                }
                continue;
            }
            self.record_time(verdict.decided_at);
            let last = last();
            follow(shard.lock().get_or_insert(hash, || last), last);
            if !self.0.has_entries.load(Ordering::Relaxed) {
                self.0.has_entries.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes the last verdict of a counter, if it still counts at the latest verdict of any counter, with the time of that.
    pub(crate) fn take(&self, cell: &CellKey, record: RecordId) -> Option<(LastVerdict, Timestamp)> {
        let hash = self.hash(cell, record);
        let last = self.shard(hash)?.lock().take(hash)?;
        let last_reply_at = Timestamp::from_micros(self.0.last_reply_at.load(Ordering::Relaxed));
        (!last.is_over(last_reply_at)).then_some((last, last_reply_at.max(last.decided_at)))
    }

    /// Records the time of a verdict, and the shift of the clock.
    fn record_time(&self, decided_at: Timestamp) {
        let micros = decided_at.as_micros();
        let Shared { last_reply_at, clock_shift, .. } = &*self.0;
        let known = last_reply_at.load(Ordering::Relaxed);
        let is_set_back = micros.saturating_add(MAX_REORDERING) < known;
        if micros < known.saturating_add(LAST_REPLY_STEP) && !is_set_back {
            return;
        }
        last_reply_at.store(micros, Ordering::Relaxed);
        let shift = micros.cast_signed().saturating_sub(Clock::System.now().as_micros().cast_signed());
        if shift.abs_diff(clock_shift.load(Ordering::Relaxed)) > MIN_CLOCK_SHIFT {
            clock_shift.store(shift, Ordering::Relaxed);
        }
    }

    fn hash(&self, cell: &CellKey, record: RecordId) -> u64 {
        let mut state = self.0.hasher.build_hasher();
        state.write(cell.as_bytes());
        state.write(record.as_bytes());
        state.finish()
    }

    fn shard(&self, hash: u64) -> Option<&Mutex<Shard>> {
        let at = hash >> SHARD_SHIFT;
        self.0.shards.get(usize::try_from(at).ok()?).map(|shard| &shard.0)
    }
}

/// Replaces a verdict, unless it is later than the new one, which then was only received later.
fn follow(known: &mut LastVerdict, new: LastVerdict) {
    let [decided, other] = [&*known, &new].map(|verdict| verdict.decided_at.as_micros());
    if decided <= other || decided > other.saturating_add(MAX_REORDERING) {
        *known = new;
    }
}

/// Whether so little of a limit is used that the counter need not be remembered.
fn is_minor(verdict: &Verdict, prefetched: u32) -> bool {
    let counted = verdict.used.saturating_add(verdict.held);
    let used = counted.saturating_add(prefetched.into());
    let limit = counted.saturating_add(verdict.remaining);
    used.saturating_mul(MINOR_PART) <= limit
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use super::*;
    use crate::test_prelude::{self, *};

    const LIMIT: u32 = 100;

    fn policy(algorithm: Algorithm) -> Policy {
        test_prelude::policy(algorithm, LIMIT.into(), 3_600)
    }

    /// Records a verdict on a counter with `used` hits.
    fn record(verdicts: &LastVerdicts, number: usize, algorithm: Algorithm, used: u32, at: u64, hits: Hits) {
        let verdict = Verdict {
            admitted: true,
            remaining: (LIMIT - used).into(),
            reset_after: Duration::from_secs(60),
            used: used.into(),
            ..Verdict::empty(Timestamp::from_micros(at))
        };
        let request = request_of(number, check(policy(algorithm), hits));
        verdicts.record(&request, &Verdicts::from_iter([(0, verdict)]), &[]);
    }

    /// Hits that remain of the counter for one instance, as far as it is known.
    fn remaining(verdicts: &LastVerdicts, number: usize, algorithm: Algorithm) -> Option<u64> {
        let (last, last_reply_at) = verdicts.take(&cell(number), RecordId::alone(algorithm))?;
        let mut state = policy(algorithm).share_after(&last, last_reply_at, NonZeroU32::MIN)?;
        Some(policy(algorithm).peek(&mut state, last.decided_at).remaining)
    }

    #[test]
    fn the_latest_verdict_of_a_counter_is_kept_and_taken_once() {
        let verdicts = LastVerdicts::default();
        let fixed = Algorithm::FixedWindow;
        for (used, at) in [(20, 1_000_000), (40, 3_000_000), (30, 2_000_000)] {
            record(&verdicts, 1, fixed, used, at, Hits::ONE);
        }
        assert_eq!(remaining(&verdicts, 2, fixed), None);
        assert_eq!(remaining(&verdicts, 1, fixed), Some(60));
        assert_eq!(remaining(&verdicts, 1, fixed), None, "the local counter has it");
    }

    #[test]
    fn little_used_counters_and_permits_are_not_kept_but_refunds_are_followed() {
        let verdicts = LastVerdicts::default();
        let fixed = Algorithm::FixedWindow;
        record(&verdicts, 1, fixed, LIMIT / 16, 1_000_000, Hits::ONE);
        record(&verdicts, 2, Algorithm::Concurrency, 50, 1_000_000, Hits::ONE);
        record(&verdicts, 3, fixed, 50, 1_000_000, Hits::ONE);
        record(&verdicts, 3, fixed, 0, 2_000_000, Hits::reset());
        assert_eq!(remaining(&verdicts, 1, fixed), None);
        assert_eq!(remaining(&verdicts, 2, Algorithm::Concurrency), None);
        assert_eq!(remaining(&verdicts, 3, fixed), Some(100));
    }

    #[test]
    fn a_verdict_that_no_longer_counts_is_not_returned() {
        let verdicts = LastVerdicts::default();
        record(&verdicts, 1, Algorithm::FixedWindow, 50, 1_000_000, Hits::ONE);
        record(&verdicts, 2, Algorithm::FixedWindow, 50, 61_000_000, Hits::ONE);
        assert_eq!(remaining(&verdicts, 1, Algorithm::FixedWindow), None);
        assert_eq!(remaining(&verdicts, 2, Algorithm::FixedWindow), Some(50));
    }

    #[test]
    fn verdicts_of_a_clock_that_was_set_back_are_followed() {
        let verdicts = LastVerdicts::default();
        let fixed = Algorithm::FixedWindow;
        record(&verdicts, 1, fixed, 20, 3_600_000_000, Hits::ONE);
        record(&verdicts, 1, fixed, 40, 10_000_000, Hits::ONE);
        assert_eq!(remaining(&verdicts, 1, fixed), Some(60));
    }

    #[test]
    fn memory_is_bounded_and_counters_in_use_stay() {
        let verdicts = LastVerdicts::default();
        let fixed = Algorithm::FixedWindow;
        for number in 0..400_000 {
            record(&verdicts, number, fixed, 50, 1_000_000, Hits::ONE);
            if number % 10_000 == 0 {
                record(&verdicts, 0, fixed, 70, 2_000_000, Hits::ONE);
            }
        }
        let bytes: usize = verdicts.0.shards.iter().map(|shard| shard.0.lock().allocated_bytes()).sum();
        assert!(bytes <= 13_000_000, "{bytes}");
        assert_eq!(remaining(&verdicts, 0, fixed), Some(30));
        assert_eq!(remaining(&verdicts, 1, fixed), None);
        assert_eq!(remaining(&verdicts, 399_999, fixed), Some(50));
    }

    #[test]
    fn a_verdict_of_a_little_used_counter_replaces_a_kept_one() {
        let (verdicts, fixed) = (LastVerdicts::default(), Algorithm::FixedWindow);
        record(&verdicts, 1, fixed, 100, 1_000_000, Hits::ONE);
        // Another instance has reset the counter.
        record(&verdicts, 1, fixed, 1, 2_000_000, Hits::ONE);
        assert_eq!(remaining(&verdicts, 1, fixed), Some(99));
        record(&verdicts, 2, fixed, 1, 2_000_000, Hits::ONE);
        assert_eq!(remaining(&verdicts, 2, fixed), None, "others are not kept");
    }
}
