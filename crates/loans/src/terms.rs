//! Terms of a limit: its units, and how long loans and hits last.
//!
//! Amounts are hits of the window (fixed window, sliding window, log), hits of the refill in one window (bucket), or
//! permits (concurrency). Ends are window labels for fixed and sliding windows, and microseconds of the region's own
//! store for the others.

use tollgate_core::{hash_of, mixed};

use crate::fault::{Fault, is_injected};

/// Length of a loan in microseconds.
pub const LOAN_MICROS: u64 = 5_000_000;

/// Time by which a lender's booking outlasts a loan that ends at a time: far more than clocks drift in one loan.
pub const MARGIN_MICROS: u64 = 500_000;

/// Time before the end of a loan at which it is prolonged, in microseconds.
const RENEWAL_MICROS: u64 = 2_000_000;

/// Maximum difference between the clocks of two regions, beyond which no loans are made, in microseconds.
pub const MAX_SKEW_MICROS: u64 = 5_000_000;

/// Number of equal parts in which the fill of a bucket is reported, at most; products with an amount are exact in the 53
/// bits of a Lua number.
const MAX_LEVELS: u64 = 1 << 20;

/// Algorithm of a limit, with the lengths that loans depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Windows aligned to the epoch, of this many seconds.
    FixedWindow {
        /// Length in seconds.
        window: u32,
    },
    /// Such windows, the previous of which counts in part.
    SlidingWindow {
        /// Length in seconds.
        window: u32,
    },
    /// Logged hits, each of which counts for a window.
    SlidingWindowLog {
        /// Length in seconds.
        window: u32,
    },
    /// A bucket that refills by its limit in each window.
    TokenBucket {
        /// Length in seconds.
        window: u32,
        /// Time in which an empty bucket fills, in microseconds, rounded up.
        capacity: u64,
    },
    /// Permits.
    Concurrency {
        /// Time after which a permit that was not returned expires, in microseconds.
        lease_ttl: u64,
    },
}

/// Terms of one limit in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Algorithm.
    pub kind: LimitKind,
    /// Limit over all regions.
    pub limit: u32,
    /// Share of this region without loans; at most the limit.
    pub base: u32,
}

/// Time in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For fixed and sliding windows the end of the active window in seconds since the epoch, as the counter's state has
    /// it: after a step back of the clock it stays. For others the same as `micros`.
    pub label: u64,
    /// Microseconds since the epoch, by the clock of the region's store.
    pub micros: u64,
}

impl LimitKind {
    /// Length of a window in seconds, if ends are window labels.
    pub const fn label_step(self) -> Option<u64> {
        match self {
            Self::FixedWindow { window } | Self::SlidingWindow { window } => {
                Some(if window == 0 { 1 } else { window as u64 })
            }
            Self::SlidingWindowLog { .. } | Self::TokenBucket { .. } | Self::Concurrency { .. } => None,
        }
    }

    /// Length of a window in microseconds; 1 s for permits, which have none.
    pub fn window_micros(self) -> u64 {
        let seconds = match self {
            Self::FixedWindow { window }
            | Self::SlidingWindow { window }
            | Self::SlidingWindowLog { window }
            | Self::TokenBucket { window, .. } => window.max(1),
            Self::Concurrency { .. } => 1,
        };
        u64::from(seconds) * 1_000_000
    }

    /// Time from the start of a loan to its end, in the unit of labels.
    ///
    /// A fixed window longer than a loan lends for one window. A shorter one lends for one more than a loan's length, as
    /// its loans are renewed; a sliding window for at least the next one.
    pub fn loan_span(self) -> u64 {
        let Some(step) = self.label_step() else { return LOAN_MICROS };
        let windows = LOAN_MICROS.div_ceil(self.window_micros());
        let windows = match self {
            Self::FixedWindow { .. } if self.window_micros() > LOAN_MICROS => windows - 1,
            _ => windows,
        };
        windows * step
    }

    /// Time before the end of a loan at which it is prolonged, in the unit of labels; 0 if it is not.
    pub fn renewal_lead(self) -> u64 {
        let Some(step) = self.label_step() else { return RENEWAL_MICROS };
        let windows = RENEWAL_MICROS.div_ceil(self.window_micros());
        (windows * step).min(self.loan_span())
    }

    /// Time for which a hit still counts at the borrower after its loan has ended, in the unit of labels.
    pub fn tail(self) -> u64 {
        match self {
            Self::FixedWindow { .. } | Self::TokenBucket { .. } => 0,
            Self::SlidingWindow { window } => u64::from(window.max(1)),
            Self::SlidingWindowLog { .. } => self.window_micros(),
            Self::Concurrency { lease_ttl } => lease_ttl,
        }
    }

    /// Time from the start of a loan to the end of the lender's booking, in the unit of labels.
    pub fn booking_span(self) -> u64 {
        let margin = if self.label_step().is_some() { 0 } else { MARGIN_MICROS };
        let tail = if is_injected(Fault::NoTail) { 0 } else { self.tail() };
        self.loan_span() + tail + margin
    }

    /// Maximum difference of labels between two regions that lend.
    pub fn max_skew(self) -> Option<u64> {
        self.label_step().map(|step| step.max(MAX_SKEW_MICROS / 1_000_000))
    }

    /// Microseconds of refill in one level of a bucket; 0 for other algorithms.
    pub fn level_micros(self) -> u64 {
        if let Self::TokenBucket { capacity, .. } = self { capacity.div_ceil(MAX_LEVELS).max(1) } else { 0 }
    }

    /// Time by which hits may make a bucket full later while a loan of it is made: a sixteenth of it; 0 for other algorithms.
    pub const fn reserve_micros(self) -> u64 {
        if let Self::TokenBucket { capacity, .. } = self { capacity / 16 } else { 0 }
    }

    /// Level of a full bucket: at most 2^20; 0 for other algorithms.
    pub fn full_level(self) -> u64 {
        if let Self::TokenBucket { capacity, .. } = self { capacity / self.level_micros() } else { 0 }
    }
}

impl Terms {
    /// Digest by which two regions compare that they have the same limit.
    pub fn digest(&self) -> u64 {
        let (number, first, second) = match self.kind {
            LimitKind::FixedWindow { window } => (0, window.into(), 0),
            LimitKind::TokenBucket { window, capacity } => (1, window.into(), capacity),
            LimitKind::SlidingWindowLog { window } => (2, window.into(), 0),
            LimitKind::Concurrency { lease_ttl } => (3, lease_ttl, 0),
            LimitKind::SlidingWindow { window } => (8, window.into(), 0),
        };
        mixed(hash_of(&[number, first, second, u64::from(self.limit)].map(u64::to_le_bytes).concat()))
    }
}
