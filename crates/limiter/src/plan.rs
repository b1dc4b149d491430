//! Plan of a request: the limits that its descriptors match, and the calls to the store that charge them.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tollgate_core::algorithm::{Policy, RegionShare};
use tollgate_core::descriptor::{Descriptor, Entry, Hits};
use tollgate_core::{clock::Clock, quota::Quota};
use tollgate_rules::{Domain, OnShareExhausted, OnStoreError, Overridden, Rule, Switched};
use tollgate_shedding::{Priority, Utilization};
use tollgate_store::request::Requests;

use crate::decision::{ListDecision, Shed, Status};
use crate::shadow_mode::Side;

/// Limits of a request, decisions that were made before them, and the calls that charge them.
#[derive(Debug)]
pub(super) struct Plan<'r, 'd> {
    /// Rules of the request's domain.
    pub(super) domain: &'r Domain,
    /// In the order of the descriptors: one of each, and behind it the extra limits of a descriptor with several. Checks and
    /// verdicts name a limit by its index.
    pub(super) limits: PlannedLimits<'r, 'd>,
    /// The decision of a list.
    pub(super) listed: Option<ListDecision>,
    /// Time after which a request that was shed may be retried.
    pub(super) shed: Option<Duration>,
    /// One call for each hash tag, and where counters are charged independently, one for each descriptor with several limits.
    pub(super) calls: Requests,
}

impl<'r> Plan<'r, '_> {
    /// Whether a limit matches in this way.
    pub(super) fn has(&self, is_such: impl Fn(&Match<'r>) -> bool) -> bool {
        self.limits.iter().any(|limit| is_such(&limit.matched))
    }
}

pub(super) type PlannedLimits<'r, 'd> = SmallVec<[PlannedLimit<'r, 'd>; 2]>;

/// Limit that a descriptor matches, if it matches any.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedLimit<'r, 'd> {
    /// Entries of the descriptor.
    pub(super) entries: &'d [Entry<'d>],
    /// Hits that the descriptor requests.
    pub(super) hits: Hits,
    /// Whether the limit before it is of the same descriptor.
    pub(super) is_extra: bool,
    pub(super) matched: Match<'r>,
}

impl<'r, 'd> PlannedLimit<'r, 'd> {
    /// The first limit of a descriptor, or its only one.
    pub(super) fn first(descriptor: &'d Descriptor<'_>, matched: Match<'r>) -> Self {
        Self { entries: &descriptor.entries, hits: descriptor.hits, is_extra: false, matched }
    }

    /// The entries that select the counter of the rule: all, or those before the name of a lease.
    pub(super) fn counted_entries(&self) -> &'d [Entry<'d>] {
        match self.matched {
            Match::Rule { depth, .. } => self.entries.get(..depth).unwrap_or_default(),
            _ => self.entries,
        }
    }

    /// Whether hits or permits that were charged before are returned.
    pub(super) fn is_refund(&self) -> bool {
        self.matched.counter().map_or(self.hits, |counter| counter.hits).is_refund()
    }
}

/// Match of one descriptor with one limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Match<'r> {
    /// No rule matches, or another rule of the request replaces it.
    None,
    /// A rule that lets everything pass.
    Unlimited(&'r Arc<Rule>),
    /// A rule that an operator has switched off. A limit override in its place is no quota, even if the rule is one.
    Off { rule: &'r Arc<Rule>, is_quota: bool },
    /// A deny list that has such entries.
    Denied,
    /// A rule's counter, and whether the rule is in shadow mode.
    Rule { rule: &'r Arc<Rule>, counter: CounterMatch, depth: usize, is_shadow: bool, side: Option<Side> },
    /// A rule that sheds by utilization.
    Shedding { rule: &'r Arc<Rule>, signal: Signal, is_shadow: bool },
    /// A counter for the request's limit override, and the rule that would apply without it.
    Override { rule: Option<&'r Arc<Rule>>, counter: CounterMatch },
}

/// Entries that match a rule that sheds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Signal {
    /// A request that may be shed.
    Request { priority: Priority, is_shed: bool },
    /// A report of the service's utilization; `None` if it is malformed.
    Report(Option<Utilization>),
}

/// Changes that operators made to the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes<'r, 'c> {
    pub(super) switched: &'c Switched,
    pub(super) overridden: &'r Overridden,
    pub(super) clock: &'c Clock,
}

impl<'r> Changes<'r, '_> {
    /// The rule that decides: `rule`, unless an override is active for it or for this key of it.
    pub(super) fn deciding(&self, rule: &'r Arc<Rule>, entries: &[Entry<'_>]) -> &'r Arc<Rule> {
        let now_ms = || self.clock.now().as_millis();
        self.overridden.rule_of(rule, entries, now_ms)
    }
}

/// Limit and hits of a matched counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterMatch {
    pub(super) quota: Quota,
    pub(super) policy: Policy,
    /// A descriptor that releases a lease does not charge.
    pub(super) hits: Hits,
    /// Own region's share of the quota, if all regions enforce it together; the policy is that of the share.
    pub(super) share: Option<RegionShare>,
}

impl CounterMatch {
    /// Own region's part of another limit in the quota's place.
    pub(super) fn part_of(&self, limit: u32) -> u32 {
        let Some(share) = self.share else { return limit };
        let part = u64::from(limit).saturating_mul(share.base.into()).checked_div(self.quota.limit);
        part.and_then(|part| u32::try_from(part).ok()).unwrap_or(limit)
    }
}

impl<'r> Match<'r> {
    /// The matched counter, if there is one.
    pub(super) const fn counter(&self) -> Option<&CounterMatch> {
        match self {
            Self::Rule { counter, .. } | Self::Override { counter, .. } => Some(counter),
            Self::None | Self::Unlimited(_) | Self::Off { .. } | Self::Denied | Self::Shedding { .. } => None,
        }
    }

    /// The rule whose counter matches; `None` for a limit override.
    pub(super) fn rule(&self) -> Option<&'r Rule> {
        if let Self::Rule { rule, .. } = self { Some(rule) } else { None }
    }

    /// Whether it is the first of several limits of its descriptor, or another one. A limit override takes the place of all.
    pub(super) fn is_of_several(&self) -> bool {
        match self {
            Self::Unlimited(rule) | Self::Off { rule, .. } | Self::Rule { rule, .. } => rule.part.is_some(),
            Self::None | Self::Denied | Self::Shedding { .. } | Self::Override { .. } => false,
        }
    }

    /// Whether the rule whose counter matches is in shadow mode. A limit override never is.
    pub(super) const fn is_shadow(&self) -> bool {
        matches!(self, Self::Rule { is_shadow: true, .. })
    }

    /// The rule whose counter matches, or in whose place a limit override decides.
    pub(super) fn stated_rule(&self) -> Option<&'r Rule> {
        if let Self::Override { rule, .. } = self { rule.map(|rule| &**rule) } else { self.rule() }
    }

    /// Whether it is a quota that is not exhausted by this request, whatever was used: one in shadow mode or switched
    /// off, or one that the request refunds.
    pub(super) fn is_endless_quota(&self) -> bool {
        match self {
            Self::Rule { rule, counter, is_shadow, .. } => {
                rule.quota_mode && (*is_shadow || counter.hits.is_refund())
            }
            Self::Off { is_quota, .. } => *is_quota,
            Self::None
            | Self::Unlimited(_)
            | Self::Denied
            | Self::Shedding { .. }
            | Self::Override { .. } => false,
        }
    }

    /// Whether the limit would not deny while the store fails: unlike [`Self::is_shadow`], a limit override has the
    /// mode of its rule.
    pub(super) fn is_shadow_when_degraded(&self) -> bool {
        match self {
            Self::Override { rule, .. } => rule.is_some_and(|rule| rule.shadow_mode),
            _ => self.is_shadow(),
        }
    }

    /// The stated policy while the store fails.
    pub(super) fn on_store_error(&self, domain: &Domain) -> Option<OnStoreError> {
        match self {
            Self::Override { rule: None, .. } => domain.default_on_store_error,
            _ => self.stated_rule()?.on_store_error,
        }
    }

    /// The descriptor's status before its counter is decided.
    pub(super) fn status_without_counter(&self) -> Status<'r> {
        match self {
            Self::Unlimited(_) => Status::Unlimited,
            Self::Off { is_quota, .. } => Status::Off { is_quota: *is_quota },
            Self::Denied => Status::Denied,
            Self::Shedding { rule, signal: Signal::Request { priority, is_shed }, is_shadow } => {
                Status::Shedding(Shed { rule, priority: *priority, is_shed: *is_shed, is_shadow: *is_shadow })
            }
            Self::None | Self::Shedding { .. } | Self::Rule { .. } | Self::Override { .. } => Status::NoLimit,
        }
    }

    /// The policy that decides while the store does not.
    pub(super) fn degraded_policy(&self) -> Option<Policy> {
        let counter = self.counter()?;
        let degraded_limit = self.rule().and_then(|rule| rule.degraded_limit);
        Some(match degraded_limit {
            Some(limit) => {
                let window = Duration::from_secs(counter.quota.window.seconds().into());
                counter.policy.with_limit(counter.part_of(limit).into(), window)
            }
            None => counter.policy,
        })
    }

    /// Whether its counter is one that regions share.
    pub(super) fn has_share(&self) -> bool {
        self.counter().is_some_and(|counter| counter.share.is_some())
    }

    /// Whether a hit that the own region's share denies waits for a loan.
    pub(super) fn waits_for_loans(&self) -> bool {
        self.has_share()
            && !self.is_shadow()
            && self.rule().is_some_and(|rule| rule.on_share_exhausted == OnShareExhausted::Wait)
    }

    /// Whether it is a peek at a limit of 0, which denies everything. The share of a region may be 0 for a while.
    pub(super) fn peeks_at_zero(&self) -> bool {
        self.counter().is_some_and(|counter| counter.hits == Hits::Peek && counter.quota.limit == 0)
    }

    /// Makes a release of a lease a read of its counter.
    pub(super) const fn peek_instead_of_release(&mut self) {
        if let Self::Rule { counter, .. } = self
            && counter.hits.is_idempotent()
        {
            counter.hits = Hits::Peek;
        }
    }

    /// Whether it is a report, which no list withholds.
    pub(super) const fn is_report(&self) -> bool {
        matches!(self, Self::Shedding { signal: Signal::Report(_), .. })
    }

    /// Whether it reserves hits of a budget.
    pub(super) fn reserves(&self) -> bool {
        self.counter().is_some_and(|counter| counter.policy.is_budget() && counter.hits.charged() > 0)
    }

    /// Whether it acquires permits or reserves hits, which are held under a lease.
    pub(super) fn acquires_permits(&self) -> bool {
        self.counter()
            .is_some_and(|counter| counter.policy.algorithm().takes_leases() && counter.hits.charged() > 0)
    }
}
