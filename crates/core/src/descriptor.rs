//! Descriptors of a request, borrowed from its message.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::{clock::Timestamp, lease::LeaseId, quota::Quota};

/// One key and value of a descriptor. Either may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key, such as `remote_address`.
    pub key: &'a str,
    /// The value in this request.
    pub value: &'a str,
}

/// Entries of one descriptor, in the caller's order. In practice few enough to need no allocation.
pub type Entries<'a> = SmallVec<[Entry<'a>; 4]>;

/// Operation on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Reads the counter without charging it.
    Peek,
    /// Charges this number of hits.
    Charge(NonZeroU64),
    /// Charges this number of hits in full, beyond the limit too, and whatever else denies the request. Passes if the
    /// counter is within its limit afterwards. Concurrency limits treat it as a charge.
    Overdraw(NonZeroU64),
    /// Refunds this number of hits; a counter never falls below zero.
    Refund(NonZeroU64),
    /// Refunds a recent charge, as far as it still counts.
    RefundCharge {
        /// Hits charged.
        amount: NonZeroU64,
        /// Time of the charge, from its verdict.
        made_at: Timestamp,
    },
    /// Acquires permits for as long as the lease is held. Algorithms without permits treat it as a charge.
    Acquire {
        /// Number of permits.
        amount: NonZeroU64,
        /// Holder of the permits.
        lease: LeaseId,
    },
    /// Returns the permits that the lease holds; an unknown lease holds none. Algorithms without permits treat it as a
    /// read.
    Release(LeaseId),
    /// Settles what the lease reserved of a budget: the hits that were used count, and the reserved ones return. Concurrency
    /// limits treat it as a release, other algorithms as a read.
    Settle {
        /// Holder of the reservation.
        lease: LeaseId,
        /// Hits that were used; 0 if that is unknown.
        used: u64,
    },
}

impl Hits {
    /// A charge of one hit.
    pub const ONE: Self = Self::Charge(NonZeroU64::MIN);

    /// Maximum amount, to which larger ones are reduced: exact in a Lua number, as any limit, which is not above it.
    pub const MAX: u64 = (1 << 53) - 1;

    /// Returns a charge of `amount` hits, or a read if that is 0.
    pub fn charge(amount: u64) -> Self {
        NonZeroU64::new(amount.min(Self::MAX)).map_or(Self::Peek, Self::Charge)
    }

    /// Returns a refund of `amount` hits, or a read if that is 0.
    pub fn refund(amount: u64) -> Self {
        NonZeroU64::new(amount.min(Self::MAX)).map_or(Self::Peek, Self::Refund)
    }

    /// Returns a refund of all hits, after which the counter equals an unused one.
    pub fn reset() -> Self {
        Self::refund(Self::MAX)
    }

    /// Whether hits or permits that were charged before are returned.
    pub const fn is_refund(self) -> bool {
        matches!(self, Self::Refund(_) | Self::RefundCharge { .. } | Self::Release(_) | Self::Settle { .. })
    }

    /// Number of hits charged; 0 for reads and refunds.
    pub const fn charged(self) -> u64 {
        match self {
            Self::Peek
            | Self::Refund(_)
            | Self::RefundCharge { .. }
            | Self::Release(_)
            | Self::Settle { .. } => 0,
            Self::Charge(amount) | Self::Overdraw(amount) | Self::Acquire { amount, .. } => amount.get(),
        }
    }

    /// Whether repeating it has no further effect.
    pub const fn is_idempotent(self) -> bool {
        matches!(self, Self::Release(_) | Self::Settle { .. })
    }

    /// Whether the hits are counted beyond the limit too.
    pub const fn is_overdraft(self) -> bool {
        matches!(self, Self::Overdraw(_))
    }

    /// Whether a denial of the hits, or of other checks of the request, keeps them from having an effect.
    pub const fn may_be_withheld(self) -> bool {
        !self.is_refund() && !self.is_overdraft()
    }
}

/// One descriptor of a request.
#[derive(Clone, Debug)]
pub struct Descriptor<'a> {
    /// The entries, in order; matching depends on the order.
    pub entries: Entries<'a>,
    /// Limit override: the quota that replaces the configured one for this request.
    pub limit: Option<Quota>,
    /// The operation on the counter that the descriptor matches.
    pub hits: Hits,
}

/// Size limits of a request. Larger ones are rejected with `INVALID_ARGUMENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBounds {
    /// Descriptors in a request.
    pub max_descriptors: usize,
    /// Entries in a descriptor.
    pub max_entries: usize,
    /// Bytes of a key, a value or a domain.
    pub max_text_bytes: usize,
}

impl Default for RequestBounds {
    fn default() -> Self {
        Self {
            // A policy of Envoy Gateway has up to 256 rules, each of which is a descriptor.
            max_descriptors: 256,
            // One of its rules has 8 selectors, each with 16 headers and 16 query parameters, beside a route, a method, a
            // path and two addresses. That are 261 entries, or those of two selectors with the 128 headers that 1.9 permits.
            max_entries: 264,
            // Texts come from a proxy's clients, and a proxy may let a request pass that is rejected here: the bound must
            // exceed what a proxy accepts, which is 60 KiB of headers in Envoy.
            max_text_bytes: 128 << 10,
        }
    }
}
