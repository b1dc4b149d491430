//! Packed state of a token bucket: the time at which it is full, and its size.

use super::state::Words;
use crate::{clock::Timestamp, saturating::Count};

/// Ticks of 10 ns in a microsecond.
pub const TICKS_PER_MICRO: u64 = 100;
/// Ticks in a millisecond.
pub const TICKS_PER_MILLI: u64 = 1_000 * TICKS_PER_MICRO;
/// Ticks in a second.
pub const TICKS_PER_SECOND: u64 = 1_000 * TICKS_PER_MILLI;

/// Bit from which on the second word of a state has the size.
pub const SIZE_SHIFT: u32 = 27;
pub(super) const TICKS_MASK: u32 = (1 << SIZE_SHIFT) - 1;

/// Unpacked state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Theoretical arrival time, in ticks since the epoch.
    pub(super) full_at: Count,
    pub(super) size: BucketSize,
}

/// Capacity of size 0 in ticks, about 82 ms; each further size has four times as much, and size 10 a day.
pub const MIN_SIZE_TICKS: u64 = 8_239_747;

/// Size of the maximum time to fill, which fits 4 bits.
const MAX_SIZE: u32 = 15;

/// Size of the rule's bucket or of the largest one used by limit overrides: a power of four, which bounds its debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketSize {
    pub(super) exponent: u32,
    /// Whether the bucket is that of a limit override.
    pub(super) of_override: bool,
}

impl BucketSize {
    /// Exponent of the size of a capacity in ticks.
    pub(super) fn exponent_of(capacity: u64) -> u32 {
        let steps = capacity.div_ceil(MIN_SIZE_TICKS).max(1);
        steps.next_power_of_two().trailing_zeros().div_ceil(2).min(MAX_SIZE)
    }

    /// Upper bound of the debt of buckets of this size, less than four times the largest possible debt.
    pub(super) const fn room(self) -> u64 {
        MIN_SIZE_TICKS << (self.exponent << 1)
    }

    /// The 5 bits of a state.
    const fn from_bits(bits: u32) -> Self {
        Self { exponent: bits / 2, of_override: bits % 2 == 1 }
    }

    const fn bits(self) -> u32 {
        self.exponent << 1 | self.of_override as u32
    }
}

impl Bucket {
    pub(super) fn read([seconds, word, _]: Words) -> Self {
        let full_at = Count(seconds.into()) * TICKS_PER_SECOND + u64::from(word & TICKS_MASK);
        Self { full_at, size: BucketSize::from_bits(word >> SIZE_SHIFT) }
    }

    /// Ticks from `now` until the bucket is full.
    pub(super) fn owed(self, now: Timestamp) -> Count {
        self.full_at - now_in_ticks(now)
    }

    pub(super) fn write(self) -> Words {
        let Count(full_at) = self.full_at;
        // The remainder is below 100,000,000, so it fits.
        [
            Count(full_at / TICKS_PER_SECOND).word(),
            (full_at % TICKS_PER_SECOND) as u32 | self.size.bits() << SIZE_SHIFT,
            0,
        ]
    }
}

/// The time in ticks since the epoch.
pub(super) fn now_in_ticks(now: Timestamp) -> Count {
    Count(now.as_micros()) * TICKS_PER_MICRO
}
