//! Size of a bucket as its state has it: a power of four, which bounds its debt.

/// Capacity of size 0 in ticks, about 82 ms; each further size has four times as much, and size 10 a day.
const MIN_SIZE_TICKS: u64 = 8_239_747;

/// Size of the maximum time to fill, which fits 4 bits.
const MAX_SIZE: u32 = 15;

/// Size of the rule's bucket or of the largest one used by limit overrides.
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
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self { exponent: bits / 2, of_override: bits % 2 == 1 }
    }

    pub(super) const fn bits(self) -> u32 {
        self.exponent << 1 | self.of_override as u32
    }
}
