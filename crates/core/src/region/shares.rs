//! Own shares as decisions need them.

use std::time::Duration;

use super::{FormerWeights, RegionWeights};
use crate::{algorithm::Policy, clock::Timestamp};

/// Own share of every global limit, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionShares {
    /// Generation of the region table.
    pub generation: u64,
    weights: RegionWeights,
    former: Box<[FormerWeights]>,
}

impl RegionShares {
    /// Returns the shares of a table after changes from `former` weights, if there were any.
    pub fn new(generation: u64, weights: RegionWeights, former: Vec<FormerWeights>) -> Self {
        Self { generation, weights, former: former.into() }
    }

    /// The weights of the generation, which apply once a change has ended.
    pub const fn weights(&self) -> &RegionWeights {
        &self.weights
    }

    /// Own share of a limit that `policy` enforces, at `now`, for the counter with the hash that `counter` returns.
    pub fn share(
        &self,
        limit: u32,
        policy: &Policy,
        now: impl FnOnce() -> Timestamp,
        counter: impl Fn() -> u64,
    ) -> u32 {
        let share = self.weights.base(limit, &counter);
        if self.former.is_empty() {
            return share;
        }
        let (now, tail) = (now(), policy.tail().saturating_add(TAIL_MARGIN));
        let counts =
            |former: &&FormerWeights| former.lowered_at.is_none_or(|lowered_at| now.since(lowered_at) < tail);
        let former =
            self.former.iter().filter(counts).map(|former| former.table.weights.base(limit, &counter));
        former.fold(share, u32::min)
    }
}

/// Time beyond the tail of a hit after which a share grows: loans of the former share are booked for 5.5 s, and the clocks
/// of two regions that lend may differ by 5 s.
const TAIL_MARGIN: Duration = Duration::from_secs(11);
