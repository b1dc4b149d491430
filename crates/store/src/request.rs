//! Requests to a store, grouped by hash tag, and their verdicts.

use smallvec::SmallVec;
use tollgate_core::algorithm::{Charging, Policy, RegionShare, Verdict};
use tollgate_core::{RecordId, SyncMode, ban::BanCheck, descriptor::Hits};

use super::key::CellKey;

/// Effect of a denied check on the other counters of its request, where they are charged all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Veto {
    /// Keeps none from being charged, as a limit in shadow mode.
    Never,
    /// Keeps all from being charged.
    Alone,
    /// Keeps all others from being charged, and is counted itself, though denied, if its algorithm counts denied hits. Otherwise
    /// like [`Self::Alone`].
    Counted,
    /// Keeps all from being charged if every check of this kind in the call is denied, as the quotas of a request.
    WithQuotas,
    /// Like [`Self::WithQuotas`], beside quotas in other calls of the request. Within a call it is [`Self::Never`],
    /// because a store decides each call by itself.
    AcrossTags,
    /// Keeps all from being charged, denied or not: its call is a precheck.
    Always,
}

impl Veto {
    /// Whether checks with these vetoes, each passing or denied, keep their counters from being charged.
    pub fn is_any(outcomes: impl Iterator<Item = (Self, bool)>) -> bool {
        let (mut is_vetoed, mut has_quota_left) = (false, None);
        for (veto, passes) in outcomes {
            match veto {
                Self::Never | Self::AcrossTags => {}
                Self::Alone | Self::Counted => is_vetoed |= !passes,
                Self::WithQuotas => has_quota_left = Some(passes || has_quota_left == Some(true)),
                Self::Always => is_vetoed = true,
            }
        }
        is_vetoed || has_quota_left == Some(false)
    }
}

/// One limit's check of its counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// Index by which the caller finds the limit: its descriptor may have several.
    pub descriptor: usize,
    /// Id of the counter's record in its cell.
    pub record: RecordId,
    /// Limit and algorithm that decide the check.
    pub policy: Policy,
    /// Hits to charge, look up or refund.
    pub hits: Hits,
    /// Whether its denial keeps the other counters of the request from being charged, where they are charged all or
    /// none. Has no effect on a refund.
    pub veto: Veto,
    /// Whether the store may decide it from the cache of an instance.
    pub sync: SyncMode,
    /// Ban of the counter, for a rule with one. Only for algorithms with records of a few words.
    pub ban: Option<BanCheck>,
    /// Share of the region in the limit, for a counter that regions share: its policy is that of the share, which loans
    /// change. Only for algorithms with loans.
    pub share: Option<RegionShare>,
}

impl Check {
    /// A check of the store's or the instance's own, of no limit of a request: it is sent, blocks nothing and bans no client.
    pub const fn own(record: RecordId, policy: Policy, hits: Hits) -> Self {
        Self {
            descriptor: 0,
            record,
            policy,
            hits,
            veto: Veto::Never,
            sync: SyncMode::Strict,
            ban: None,
            share: None,
        }
    }

    /// The effect of its denial: none for a refund.
    pub const fn effective_veto(&self) -> Veto {
        if self.hits.is_refund() { Veto::Never } else { self.veto }
    }

    /// The ban that the check applies. A refund has no part in it, unless it also ends the ban.
    pub fn applied_ban(&self) -> Option<BanCheck> {
        self.ban.filter(|ban| !self.hits.is_refund() || ban.effect.ends())
    }

    /// Whether hits beyond the limit are counted, in a request charged as `charging`. Some algorithms count none. A counter that may be leased counts
    /// only admitted hits: otherwise returned tokens would come too late for the requests denied meanwhile. So does one that
    /// regions share, since a loan would come too late.
    pub fn counting(&self, charging: Charging) -> Charging {
        match self.sync {
            SyncMode::Strict if self.share.is_none() && self.policy.counts_denied() => match self.veto {
                Veto::Counted => Charging::Independent,
                _ => charging,
            },
            SyncMode::Strict | SyncMode::Leased | SyncMode::Auto => Charging::AllOrNone,
        }
    }
}

/// One cell, and the checks of its counters, in the order of the request.
#[derive(Debug, PartialEq)]
pub struct Cell {
    /// Name of the cell.
    pub key: CellKey,
    /// Checks of its counters.
    pub checks: SmallVec<[Check; 1]>,
}

// A clone of a vector element by element would cost more than all else of a clone, and each request to Redis is cloned.
impl Clone for Cell {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), checks: SmallVec::from_slice(&self.checks) }
    }
}

impl Cell {
    /// Whether exactly one check is of the counter.
    pub fn checks_once(&self, record: RecordId) -> bool {
        self.checks.iter().filter(|check| check.record == record).count() == 1
    }
}

/// All checks of a request that share one hash tag: decided in one atomic step, and counted as one call in metrics.
#[derive(Debug)]
pub struct TagRequest {
    /// Cells of one tag, each at most once.
    pub cells: SmallVec<[Cell; 1]>,
    /// Whether a denial keeps the other counters from being charged.
    pub charging: Charging,
    /// Whether these are the limits of one rule, which are charged all or none by themselves: a denial by another rule of
    /// the request concerns them no more than those of independent rules.
    pub is_of_rule: bool,
}

impl Clone for TagRequest {
    fn clone(&self) -> Self {
        let cells = match self.cells.as_slice() {
            [cell] => SmallVec::from_buf([cell.clone()]),
            cells => cells.iter().cloned().collect(),
        };
        Self { cells, charging: self.charging, is_of_rule: self.is_of_rule }
    }
}

/// Verdicts of one request, cell by cell, each with the index of its limit, [`Check::descriptor`].
pub type Verdicts = SmallVec<[(usize, Verdict); 1]>;

/// Outcome of a request that was sent once for several callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// The verdicts for each caller, in order; tokens charged ahead are not included in them.
    pub verdicts: SmallVec<[Verdicts; 1]>,
    /// For each check, cell by cell, the number of tokens charged ahead; empty if none were requested.
    pub prefetched: SmallVec<[u32; 2]>,
}

/// The tag requests of one rate limit request, one for each tag. Most consist of one, with one check: a larger inline
/// capacity, here and above, would be copied with every request.
pub type Requests = SmallVec<[TagRequest; 1]>;

impl TagRequest {
    /// A request with one check.
    pub fn new(charging: Charging, key: CellKey, check: Check) -> Self {
        let cells = SmallVec::from_iter([Cell { key, checks: SmallVec::from_iter([check]) }]);
        Self { cells, charging, is_of_rule: false }
    }

    /// A request with the first check of several limits of one rule.
    pub fn of_rule(key: CellKey, check: Check) -> Self {
        Self { is_of_rule: true, ..Self::new(Charging::AllOrNone, key, check) }
    }

    /// Manner in which its counters are charged with those of the other calls of the request.
    pub const fn charging_across_calls(&self) -> Charging {
        if self.is_of_rule { Charging::Independent } else { self.charging }
    }

    /// A request that is charged in the same manner, with one check.
    #[must_use]
    pub fn with_check(&self, key: CellKey, check: Check) -> Self {
        Self { is_of_rule: self.is_of_rule, ..Self::new(self.charging, key, check) }
    }

    /// The name of the first cell.
    pub fn key(&self) -> Option<&CellKey> {
        self.cells.first().map(|cell| &cell.key)
    }

    /// The hash tag shared by the cells.
    pub fn tag(&self) -> &[u8] {
        self.key().map(CellKey::tag).unwrap_or_default()
    }

    /// The Redis Cluster slot of the cells.
    pub fn slot(&self) -> u16 {
        self.key().map_or(0, CellKey::slot)
    }

    /// Whether the primary region decides its counters for all regions.
    pub fn is_at_primary(&self) -> bool {
        self.key().is_some_and(CellKey::is_at_primary)
    }

    /// Adds a check to the cell `key`, whose tag must be that of this request.
    pub fn push(&mut self, key: CellKey, check: Check) {
        match self.cells.iter_mut().find(|cell| cell.key == key) {
            Some(cell) => cell.checks.push(check),
            None => self.cells.push(Cell { key, checks: SmallVec::from_iter([check]) }),
        }
    }

    /// The call as a precheck: a verdict for each check, and nothing is charged.
    #[must_use]
    pub fn precheck(&self) -> Self {
        let mut precheck = self.clone();
        let checks = precheck.cells.iter_mut().flat_map(|cell| &mut cell.checks);
        checks.for_each(|check| {
            // A denial here is one of the request, unless it denies nothing: then the charge follows, and counts.
            if check.veto == Veto::Never {
                check.ban = None;
            }
            check.veto = Veto::Always;
            // A charge beyond the limit is not withheld.
            if let Hits::Overdraw(amount) = check.hits {
                check.hits = Hits::Charge(amount);
            }
        });
        precheck
    }

    /// Whether its counters are kept from being charged, given which checks pass, in their order.
    pub fn is_vetoed(&self, passes: impl Iterator<Item = bool>) -> bool {
        let outcomes = self.checks().map(Check::effective_veto).zip(passes);
        self.charging == Charging::AllOrNone && Veto::is_any(outcomes)
    }

    /// Iterates over the checks, cell by cell.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.cells.iter().flat_map(|cell| &cell.checks)
    }

    /// Iterates over the checks with their cells, cell by cell.
    pub fn checks_with_cells(&self) -> impl Iterator<Item = (&Cell, &Check)> {
        self.cells.iter().flat_map(|cell| cell.checks.iter().map(move |check| (cell, check)))
    }
}

/// Adds a check to the request of its tag, unless that is the one of a rule alone.
pub fn push_check(requests: &mut Requests, charging: Charging, key: CellKey, check: Check) {
    match requests.iter_mut().find(|request| !request.is_of_rule && request.tag() == key.tag()) {
        Some(request) => request.push(key, check),
        None => requests.push(TagRequest::new(charging, key, check)),
    }
}
