//! Parameters of algorithms besides the quota, and the errors of quotas that they cannot enforce.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::queue::MAX_QUEUED;
use crate::{descriptor::Hits, quota::Quota, saturating::Count};

/// Time to live of a lease by default.
pub const DEFAULT_LEASE_TTL: Duration = Duration::from_secs(60);

/// Number of ten thousandths in a whole.
const WHOLE: u64 = 10_000;

/// Parameters besides the quota; each is ignored by the algorithms that do not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Capacity of a token bucket in hits; the limit if absent.
    pub burst: Option<u32>,
    /// Minimum time between two requests admitted by an exact log; zero disables it.
    pub min_interval: Duration,
    /// Time after which a permit of a concurrency limit that was not returned expires.
    pub lease_ttl: Duration,
    /// Whether charges count beyond the limit.
    pub overdraft: bool,
    /// Number of hits that an overdraft of a bucket, or of a window with a carry, takes beyond the limit at most; the limit
    /// if absent.
    pub max_debt: Option<u32>,
    /// Whether hits beyond the limit of a fixed window with an overdraft count in the next windows.
    pub carry: bool,
    /// Share of the unused hits of a fixed window that raises the next one, in percent.
    pub unused_percent: u8,
    /// Terms of the reservations of a fixed window, if it has any.
    pub reserve: Option<Reserve>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            burst: None,
            min_interval: Duration::ZERO,
            lease_ttl: DEFAULT_LEASE_TTL,
            overdraft: false,
            max_debt: None,
            carry: false,
            unused_percent: 0,
            reserve: None,
        }
    }
}

impl Parameters {
    /// Maximum number of hits beyond the limit of `quota`.
    pub(super) fn debt_of(&self, quota: Quota) -> u32 {
        if self.overdraft { self.max_debt.unwrap_or(quota.word()) } else { 0 }
    }
}

/// Error of a quota that an algorithm cannot enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A bucket that takes too long to fill.
    #[error("expected a burst that refills within 2.8 years at this rate")]
    TooSlow,
    /// A debt that takes too long to refill.
    #[error("expected a max_debt that refills within 2.8 years at this rate, together with the burst")]
    TooDeep,
    /// A bucket whose emission interval is so short that rounding changes the rate by more than 1 %.
    #[error("expected a token bucket rate that is exact within 1 %: at most about a million per second")]
    TooFast,
    /// A limit with more bits than the algorithm's state has for it.
    #[error("expected a limit of at most 4294967295, or `fixed_window` without `carry` and `reserve`")]
    TooLarge,
    /// A log or a list of leases that would be too long.
    #[error("expected a limit of at most {MAX_QUEUED}, since this algorithm stores each hit")]
    TooMany,
    /// A minimum interval longer than the window: a request that waits for it would find an empty log.
    #[error("expected a min_interval that is no longer than the window")]
    TooRare,
}

crate::named! {
    /// Effect of a lease that ends, or is settled, without a known usage.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Unsettled {
        /// The reserved hits count as used.
        #[default]
        Charge = "charge",
        /// The reserved hits return.
        Release = "release",
    }
}

/// Terms of the reservations of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Time after which a lease ends by itself, in seconds.
    pub ttl: NonZeroU32,
    /// Effect of a lease without a known usage.
    pub unsettled: Unsettled,
    /// Hits that are reserved beyond those of the request.
    pub add: u32,
    /// Maximum share of the limit that one reservation takes, in ten thousandths.
    pub cap: Option<NonZeroU32>,
}

impl Reserve {
    /// Time after which a lease ends by itself.
    pub const fn lease_ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.get() as u64)
    }

    /// The maximum share of the limit, in percent.
    #[allow(clippy::float_arithmetic)] // Shown to people.
    pub fn cap_percent(&self) -> Option<f64> {
        self.cap.map(|cap| f64::from(cap.get()) / 100.0)
    }

    /// Hits that a request of `hits` reserves of a limit: with those to add, and at most the share of the limit.
    pub fn amount(&self, hits: NonZeroU64, limit: u64) -> NonZeroU64 {
        self.capped(hits.saturating_add(self.add.into()), limit)
    }

    /// Hits that one reservation takes of a limit, of the `wanted` ones.
    pub fn capped(&self, wanted: NonZeroU64, limit: u64) -> NonZeroU64 {
        let Some(cap) = self.cap else { return wanted.min(NonZeroU64::new(Hits::MAX).unwrap_or(wanted)) };
        let most = (Count(limit) * u64::from(cap.get())).0 / WHOLE;
        wanted.min(NonZeroU64::new(most).unwrap_or(NonZeroU64::MIN))
    }
}
