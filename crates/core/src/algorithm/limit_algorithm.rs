//! The trait of an algorithm.
//!
//! Every algorithm keeps these promises, which tests over all of them check: an unused state is zeros; within four windows
//! of a step back of the clock nothing is granted twice, and beyond them the usage moves to the present; hits pass at
//! `retry_after`, and not a microsecond before; a limit of 0 denies; a changed limit keeps the usage; overdrafts are taken,
//! unless hits are permits; all products stay below 2^53, for Lua.

use std::{num::NonZeroU32, time::Duration};

use super::{Charging, LastVerdict, Parameters, PolicyError, Prefetch, State, StateSummary, Verdict};
use crate::quota::{Quota, share_of};
use crate::{clock::Timestamp, descriptor::Hits, saturating::Count};

/// Part of a share, as a divisor, that is not granted while the store is slow and still charges the counter.
pub(super) const RESERVED_PART: u64 = 8;

/// An algorithm with its parameters: how a limit is made of a quota, how hits are decided, and how the limit is divided.
pub trait LimitAlgorithm: Copy {
    /// State of a counter.
    type State: State;

    /// Returns the nearest enforceable limit to `quota`.
    fn nearest(quota: Quota, parameters: &Parameters) -> Self;

    /// Checks whether this limit, the nearest to `quota`, enforces exactly it: by default, if the quota has 32 bits.
    ///
    /// # Errors
    /// [`PolicyError`] if it does not.
    fn check(&self, quota: Quota, _parameters: &Parameters) -> Result<(), PolicyError> {
        if quota.is_wide() { Err(PolicyError::TooLarge) } else { Ok(()) }
    }

    /// Parameters that this limit has in common with the limit overrides that replace it. The burst and the maximum debt of
    /// these equal their limit.
    fn common_parameters(&self) -> Parameters {
        Parameters::default()
    }

    /// Returns this limit for the quota of a limit override.
    #[must_use]
    fn with_quota(self, quota: Quota) -> Self {
        Self::nearest(quota, &self.common_parameters())
    }

    /// Maximum number of hits that count at the same time, without an overdraft.
    fn limit(&self) -> u64;

    /// Length of a window, approximately with a calendar; zero without windows.
    fn length(&self) -> Duration {
        Duration::ZERO
    }

    /// End of the window that contains `now`, in seconds since the epoch; `None` where usage never begins anew.
    fn window_end(&self, _now: Timestamp) -> Option<u32> {
        None
    }

    // Decisions.

    /// Whether hits that it denies are counted, where each counter is charged for itself.
    fn counts_denied(&self) -> bool {
        false
    }

    /// Decides `hits` at `now`, updates `state`, and returns whether the hits pass.
    fn apply(&self, state: &mut Self::State, now: Timestamp, hits: Hits, charging: Charging) -> bool;

    /// Whether `hits` would pass at `now` after `earlier` hits of the same request, for algorithms that store each hit;
    /// `None` for others. Charges nothing, but may advance the state to `now`.
    fn passes(&self, _state: &mut Self::State, _now: Timestamp, _earlier: u64, _hits: Hits) -> Option<bool> {
        None
    }

    /// Returns the summary of a state after a decision at `now` on `hits`. Words are their own summary.
    fn summary(&self, _state: &Self::State, _now: Timestamp, _hits: Hits) -> StateSummary {
        StateSummary::Words([0; 3])
    }

    /// Returns the verdict of a decision at `now` on `hits`, after which the state has the summary `of`.
    fn verdict(
        &self,
        of: StateSummary,
        now: Timestamp,
        hits: Hits,
        admitted: bool,
        charging: Charging,
    ) -> Verdict;

    /// Time from which `state` equals an unused one and may be dropped, in seconds since the epoch, rounded up. Of words, it
    /// follows from them alone: Lua's `ends_at` has no parameters, so a state has an end, not the time of its last use.
    fn expires_at(&self, state: &Self::State) -> u32;

    // Tokens charged ahead.

    /// Charges the tokens that are granted to `prefetch` at `now`, and returns their number: none, if each hit is stored.
    fn prefetch(&self, _state: &mut Self::State, _now: Timestamp, _prefetch: Prefetch) -> u32 {
        0
    }

    /// Time until which tokens prefetched at `now` may be spent: the end of the window. `None` for a bucket, where only the
    /// requested hold applies.
    fn prefetched_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.window_end(now).map(Timestamp::from_seconds)
    }

    // Parameters, for messages and for the scripts.

    /// Parameters of the algorithm's script, in the order documented in the script. Windows of a calendar need an estimate of
    /// the store's time.
    fn script_parameters(&self, store_time: impl FnOnce() -> Timestamp) -> [i64; 2];

    /// The bound of an overdraft, as the script has it: ticks of debt of a bucket, hits otherwise.
    fn script_bound(&self) -> u64 {
        u32::MAX.into()
    }

    /// Whether every operation needs the bound of the overdraft, not only a charge: a window with a carry, a bucket that
    /// goes into debt.
    fn has_bound(&self) -> bool {
        false
    }

    /// Maximum number of hits that an overdraft takes beyond the limit; `None` without a bound.
    fn max_debt(&self) -> Option<u64> {
        None
    }

    // Shares of a limit.

    /// Returns this algorithm with another limit. A bucket refills by it in `window`. All other algorithms keep their
    /// window, and ignore `window`. A bucket has none, so that it overrides the functions below, which pass `self.length()`.
    #[must_use]
    fn with_limit(self, limit: u64, window: Duration) -> Self;

    /// Returns one of `instances` equal shares, each with its own counter.
    #[must_use]
    fn shared_by(self, instances: NonZeroU32) -> Self {
        self.with_limit(share_of(self.limit(), instances), self.length())
    }

    /// Returns this share of a limit without the part that the other instances may have charged by now: a limit from 8 hits
    /// on is reduced by an eighth.
    #[must_use]
    fn with_reserve(self) -> Self {
        self.with_limit((Count(self.limit()) - self.limit() / RESERVED_PART).0, self.length())
    }

    /// Returns a part of `share` hits of this limit of `whole` hits: in the same window, or with a part of a bucket's rate
    /// and of its tokens.
    #[must_use]
    fn region_share(self, share: u32, _whole: u32) -> Self {
        self.with_limit(share.into(), self.length())
    }

    /// Time for which a hit may count after the window, or the time, in which its region had the share that admitted it. A
    /// loan of windows lasts for one further window, or for those of some seconds.
    fn tail(&self) -> Duration {
        self.length()
    }

    /// Whether regions may lend parts of such a limit to each other.
    fn can_be_lent(&self) -> bool {
        false
    }

    /// Label of a charge at `now`: the end of the window that it counts in, or of this second.
    fn label(&self, _state: &Self::State, now: Timestamp) -> u32 {
        now.seconds().saturating_add(1)
    }

    // After the last verdict of a store that failed.

    /// Returns what a verdict leaves to know, given that `prefetched` tokens were charged after it.
    fn last_verdict(&self, verdict: &Verdict, prefetched: u32) -> LastVerdict {
        LastVerdict::of(verdict, prefetched)
    }

    /// State of this share of the `whole` limit after its last verdict; `None` for permits, which end with their requests.
    fn after(&self, whole: &Self, last: &LastVerdict, instances: NonZeroU32) -> Option<Self::State>;

    /// Estimate of the hits that are charged in the time `elapsed` after `from`, when `used` hits counted: as many in that
    /// time as before.
    fn expected_hits(&self, used: u64, _from: Timestamp, elapsed: Duration) -> u64 {
        in_proportion_of_time(used, elapsed, self.length())
    }
}

/// Number of hits in the time `elapsed`, if there are `hits` of them `within` a time.
pub(super) fn in_proportion_of_time(hits: u64, elapsed: Duration, within: Duration) -> u64 {
    let product = u128::from(hits).saturating_mul(elapsed.as_micros());
    let expected = product.checked_div(within.as_micros().max(1)).unwrap_or(0);
    u64::try_from(expected).unwrap_or(u64::MAX)
}
