//! What a caller tells about a request, borrowed from its message.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::{clock::Timestamp, lease::LeaseId, quota::Quota};

/// One key and value of a descriptor. Either may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What is told, such as `remote_address`.
    pub key: &'a str,
    /// What it is in this request.
    pub value: &'a str,
}

/// The entries of one descriptor, in the caller's order. Few enough in practice to need no allocation.
pub type Entries<'a> = SmallVec<[Entry<'a>; 4]>;

/// What is asked of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Look without charging.
    Peek,
    /// Charge so many hits.
    Charge(NonZeroU64),
    /// Give so many hits back; a counter never falls below zero.
    Refund(NonZeroU64),
    /// Take back a charge that was made a moment ago, as far as it still counts.
    Undo {
        /// Hits that were charged.
        amount: NonZeroU64,
        /// When they were, as the charge's verdict said.
        made_at: Timestamp,
    },
    /// Charge so many hits for as long as the lease is held. What is no concurrency limit takes it for a charge.
    Acquire {
        /// Places to take.
        amount: NonZeroU64,
        /// Who holds them.
        lease: LeaseId,
    },
    /// Give up what the lease holds; one that is not known holds nothing. What is no concurrency limit takes it
    /// for a look.
    Release(LeaseId),
}

impl Hits {
    /// One hit, charged.
    pub const ONE: Self = Self::Charge(NonZeroU64::MIN);

    /// More hits than any limit can be, yet exact in a Lua number; larger amounts count as this one.
    pub const MAX: u64 = 1 << 40;

    /// Charges `amount` hits, or looks when that is 0.
    pub fn charge(amount: u64) -> Self {
        NonZeroU64::new(amount.min(Self::MAX)).map_or(Self::Peek, Self::Charge)
    }

    /// Gives `amount` hits back, or looks when that is 0.
    pub fn refund(amount: u64) -> Self {
        NonZeroU64::new(amount.min(Self::MAX)).map_or(Self::Peek, Self::Refund)
    }

    /// Gives everything back: the counter is as good as unused.
    pub fn reset() -> Self {
        Self::refund(Self::MAX)
    }

    /// Whether it gives back what was charged before.
    pub const fn gives_back(self) -> bool {
        matches!(self, Self::Refund(_) | Self::Undo { .. } | Self::Release(_))
    }

    /// The hits charged: 0 for whatever charges none.
    pub const fn charged(self) -> u64 {
        match self {
            Self::Peek | Self::Refund(_) | Self::Undo { .. } | Self::Release(_) => 0,
            Self::Charge(amount) | Self::Acquire { amount, .. } => amount.get(),
        }
    }
}

/// One descriptor of a request.
#[derive(Clone, Debug)]
pub struct Descriptor<'a> {
    /// What it tells, in order; the order decides what matches.
    pub entries: Entries<'a>,
    /// A limit that the caller asks for in place of the configured one.
    pub limit: Option<Quota>,
    /// What it asks.
    pub hits: Hits,
}
