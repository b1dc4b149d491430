//! Samples the descriptors that a thread decides: every hit while there are few, otherwise as many as a budget allows.

use std::{hash::BuildHasher as _, str, sync::Arc};

use fastrand::Rng;
use foldhash::quality::RandomState;
use hashbrown::HashSet;
use parking_lot::Mutex;
use tollgate_core::descriptor::Entry;

use super::{Active, MAX_TEXT_BYTES, REPORT_INTERVAL_TICKS, key};

/// Samples of one thread. The collector takes all at once; neither side ever waits.
pub(super) type Queue = Arc<Mutex<Samples>>;

/// Sampler of one thread. A call without a sample costs a hash of its domain and one or two random numbers.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    queue: Queue,
    tick: u32,
    requested: SamplingRate,
    denied: SamplingRate,
    random: Rng,
    hasher: RandomState,
    /// Hash of the last domain.
    latest: u64,
    /// Hashes of the domains that were reported recently.
    reported: HashSet<u64, foldhash::fast::FixedState>,
    reported_at: u32,
    /// Samples lost because the collector held the queue.
    missed: u64,
}

impl Sampler {
    pub(super) fn new(queue: Queue) -> Self {
        Self { queue, ..Self::default() }
    }

    /// Reports the domain as active, unless it was reported recently.
    #[inline]
    pub(super) fn record_domain(&mut self, domain: &str, now: u32, active: &Active) {
        if self.tick != now {
            self.advance(now);
        }
        let name = self.hasher.hash_one(domain);
        if name != self.latest {
            self.latest = name;
            if self.reported.insert(name) {
                active.record(domain, now);
            }
        }
    }

    /// Takes a sample, at random.
    #[inline]
    pub(super) fn record(&mut self, domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
        let requested = self.requested.weigh(hits, &mut self.random);
        let denied = if is_denied { self.denied.weigh(hits, &mut self.random) } else { 0 };
        if requested > 0 || denied > 0 {
            match self.queue.try_lock() {
                Some(mut samples) => {
                    samples.push(domain, entries, requested, denied);
                    samples.count_dropped(std::mem::take(&mut self.missed));
                }
                None => self.missed = self.missed.saturating_add(1),
            }
        }
    }

    /// Adjusts the sampling rates after some ticks.
    #[cold]
    fn advance(&mut self, now: u32) {
        let ticks = now.saturating_sub(self.tick);
        self.tick = now;
        self.requested.advance(ticks);
        self.denied.advance(ticks);
        if now.saturating_sub(self.reported_at) >= REPORT_INTERVAL_TICKS {
            self.reported_at = now;
            self.reported.clear();
            self.latest = 0;
        }
    }
}

/// Approximate samples of one kind that a thread takes in a tick: 5,000 in a second.
const SAMPLES_PER_TICK: u64 = 500;

/// Maximum number of hits that one sample represents.
const MAX_WEIGHT: u64 = 1 << 56;

/// Samples one hit in `stride` at random, so that no traffic pattern can match the sampling.
///
/// All hits are equally likely regardless of earlier ones, so the stride may change at any time and the weights of the
/// samples still add up, on average, to the hits.
#[derive(Debug)]
struct SamplingRate {
    stride: u64,
    /// Samples since the last tick, scaled to the current stride.
    taken: u64,
}

impl Default for SamplingRate {
    fn default() -> Self {
        Self { stride: 1, taken: 0 }
    }
}

impl SamplingRate {
    /// Returns the weight of the sample taken of these hits; 0 if none is taken.
    fn weigh(&mut self, hits: u64, random: &mut Rng) -> u64 {
        let weight = match self.stride {
            1 => hits,
            stride => {
                // Most calls have one hit, which needs no division.
                let whole = if hits < stride { 0 } else { hits.checked_div(stride).unwrap_or_default() };
                let rest = hits.saturating_sub(stride.saturating_mul(whole));
                let is_picked = random.u64(..stride) < rest;
                stride.saturating_mul(whole.saturating_add(u64::from(is_picked)))
            }
        };
        if weight > 0 {
            self.taken = self.taken.saturating_add(1);
            if self.taken >= SAMPLES_PER_TICK {
                // More hits than expected.
                self.stride = self.stride.saturating_mul(2).min(MAX_WEIGHT);
                self.taken = SAMPLES_PER_TICK / 2;
            }
        }
        weight
    }

    /// Sets the rate for the traffic of the last `ticks`, which is expected to continue.
    fn advance(&mut self, ticks: u32) {
        let budget = SAMPLES_PER_TICK.saturating_mul(u64::from(ticks.max(1)));
        self.stride = self.stride.saturating_mul(self.taken).div_ceil(budget).clamp(1, MAX_WEIGHT);
        self.taken = 0;
    }
}

/// Maximum size of the queued samples of a thread.
const MAX_BYTES: usize = 256 << 10;

/// Hits of one key, including those that the sample represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    pub(super) domain: &'a str,
    pub(super) key: &'a str,
    /// Requested hits.
    pub(super) requested: u64,
    /// Denied hits; may exceed the requested ones, because both are sampled separately.
    pub(super) denied: u64,
}

/// Encoded samples, in order.
#[derive(Debug, Default)]
pub(super) struct Samples {
    bytes: Vec<u8>,
    /// Number of dropped samples.
    pub(super) dropped: u64,
}

impl Samples {
    /// Adds a sample, if there is room.
    pub(super) fn push(&mut self, domain: &str, entries: &[Entry<'_>], requested: u64, denied: u64) {
        let Ok(length) = u16::try_from(domain.len()) else { return self.count_dropped(1) };
        if usize::from(length) > MAX_TEXT_BYTES || self.bytes.len() >= MAX_BYTES {
            return self.count_dropped(1);
        }
        self.bytes.extend_from_slice(&requested.to_le_bytes());
        self.bytes.extend_from_slice(&denied.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(domain.as_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        let from = self.bytes.len();
        key::push(&mut self.bytes, from, entries);
        let length = u16::try_from(self.bytes.len().saturating_sub(from)).unwrap_or_default();
        if let Some(place) = self.bytes.get_mut(at..from) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Counts dropped samples.
    pub(super) const fn count_dropped(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// Returns all samples, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Sample<'_>> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (requested, denied) =
                (u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?));
            Some(Sample { requested, denied, domain: text(&mut rest)?, key: text(&mut rest)? })
        })
    }

    /// Removes all samples, but keeps the allocation.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.dropped = 0;
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = u16::from_le_bytes(take(rest)?);
    let (text, behind) = rest.split_at_checked(usize::from(length))?;
    *rest = behind;
    str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ones(stride: &mut SamplingRate, random: &mut Rng, calls: std::ops::Range<u64>) {
        for _ in calls {
            stride.weigh(1, random);
        }
    }

    #[test]
    fn all_hits_are_sampled_while_there_are_few_and_again_later() {
        let (mut stride, mut random) = (SamplingRate::default(), Rng::with_seed(1));
        for _ in 0..20 {
            (0..SAMPLES_PER_TICK - 1).for_each(|_| assert_eq!(stride.weigh(3, &mut random), 3));
            stride.advance(1);
        }
        ones(&mut stride, &mut random, 0..1_000_000);
        assert!(stride.stride > 100);
        for _ in 0..6 {
            stride.advance(1);
            ones(&mut stride, &mut random, 0..SAMPLES_PER_TICK / 10);
        }
        assert_eq!(stride.stride, 1);
        assert_eq!(stride.weigh(7, &mut random), 7);
        ones(&mut stride, &mut random, 0..1_000_000);
        stride.advance(u32::MAX);
        assert_eq!(stride.stride, 1, "after a long silence");
    }

    #[test]
    fn samples_keep_to_the_budget_and_their_weights_add_up_to_the_hits() {
        for hits in [1, 7, 1_000, 1 << 40] {
            let (mut stride, mut random) = (SamplingRate::default(), Rng::with_seed(2));
            let (mut weights, mut samples, ticks, calls) = (0_u128, 0_u64, 100, 20_000);
            for _ in 0..ticks {
                for _ in 0..calls {
                    let weight = stride.weigh(hits, &mut random);
                    weights += u128::from(weight);
                    samples += u64::from(weight > 0);
                }
                stride.advance(1);
            }
            // The first tick begins with a stride of 1 and adapts.
            assert!(samples < SAMPLES_PER_TICK * (ticks + 30), "{samples} samples of {hits} hits");
            let truth = u128::from(hits) * u128::from(ticks) * calls;
            assert!(weights.abs_diff(truth) < truth / 50, "{weights} for {truth}");
        }
    }

    #[test]
    fn a_call_with_many_hits_is_not_missed_among_those_with_one() {
        let (mut stride, mut random) = (SamplingRate::default(), Rng::with_seed(3));
        ones(&mut stride, &mut random, 0..100_000);
        let weight = stride.weigh(1 << 30, &mut random);
        assert!(weight.abs_diff(1 << 30) <= stride.stride, "{weight}");
    }

    #[test]
    fn samples_are_returned_in_order() {
        let mut samples = Samples::default();
        samples.push("edge", &[Entry { key: "api_key", value: "a,b" }], 2, 1);
        samples.push("edge", &[], 4, 3);
        let all: Vec<_> = samples.iter().collect();
        let first = Sample { domain: "edge", key: r"api_key=a\,b", requested: 2, denied: 1 };
        assert_eq!(all, [first, Sample { domain: "edge", key: "", requested: 4, denied: 3 }]);
    }

    #[test]
    fn dropped_samples_are_counted() {
        let mut samples = Samples::default();
        let long = "x".repeat(1_000);
        (0..2_000).for_each(|_| samples.push("edge", &[Entry { key: "k", value: &long }], 1, 0));
        assert!(samples.bytes.len() < MAX_BYTES + 1_000);
        assert_eq!(samples.iter().count() as u64 + samples.dropped, 2_000);
        assert!(samples.dropped > 0);
        samples.clear();
        samples.push(&long, &[], 1, 0);
        samples.push(&"x".repeat(1 << 17), &[], 1, 0);
        assert_eq!((samples.iter().count(), samples.dropped), (0, 2));
    }
}
