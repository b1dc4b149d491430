//! Cached state of counters.

use std::{collections::BTreeMap, mem};

use tokio::time::Instant;
use tollgate_core::algorithm::{Charging, Policy, Prefetch, Verdict};
use tollgate_core::{SyncMode, descriptor::Hits};

use super::leased_tokens::{LeasedTokens, Unused};
use super::two_generation_map::{CounterName, TwoGenerationMap};
use super::{demand::HeatFilter, denial::Denial};
use crate::request::{Cell, Check, Requests, TagRequest, Verdicts, Veto};

/// Verdicts without a call to a server.
pub(crate) type LocalDecision = (Verdicts, Source);

/// Source of a decision without a call to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A cached denial that is still valid.
    DenialCache,
    /// Tokens charged ahead.
    Lease,
}

/// Cache of counters.
#[derive(Debug, Default)]
pub(super) struct CounterCache {
    entries: TwoGenerationMap<CacheEntry>,
    /// Requests for counters of `sync: auto`.
    heat_filter: HeatFilter,
    expiries: Expiries,
    grant_count: u64,
    /// Tokens to be refunded.
    unused_tokens: Vec<(CounterName, Unused)>,
}

/// Refunds at a time: as many as a server decides in a small part of their deadline.
pub(super) const MAX_REFUNDS: usize = 512;

/// Counters with tokens, by the time until which these must be spent, in the order of the grants.
type Expiries = BTreeMap<(Instant, u64), CounterName>;

/// Cached state of one counter.
#[derive(Debug)]
struct CacheEntry {
    /// The policy under which the state was found.
    policy: Policy,
    denial: Option<Denial>,
    /// Hits that the cached denial denied, to be reported for the counter's ban.
    unreported: u16,
    leased_tokens: Option<Box<LeasedTokens>>,
}

impl CacheEntry {
    /// Caches the denial of a reply, or drops the cached one. A cached ban stays if the reply does not show bans, as that to
    /// a refund, or shows that one is active.
    fn set_denial(&mut self, denial: Option<Denial>, check: &Check, verdict: &Verdict) {
        let is_without_ban = check.hits.is_refund() && check.applied_ban().is_none();
        let shows_no_end = is_without_ban || verdict.ban.is_some_and(|ban| ban.is_enforced);
        if denial.is_some() || !shows_no_end || !self.denial.as_ref().is_some_and(Denial::is_of_ban) {
            self.denial = denial;
        }
    }

    const fn new(policy: Policy) -> Self {
        Self { policy, denial: None, unreported: 0, leased_tokens: None }
    }

    /// Decides a check, if possible.
    fn decide(&mut self, check: &Check, now: Instant) -> Option<(Verdict, Source)> {
        if self.policy != check.policy {
            return None;
        }
        // Under an enforced ban, no token may be spent.
        if let Some(verdict) = self.denial.as_ref().and_then(|denial| denial.banned(check.hits, now)) {
            return Some((verdict, Source::DenialCache));
        }
        let leased_tokens = self.leased_tokens.as_mut().filter(|_| check.sync.may_lease());
        if let Some(verdict) = leased_tokens.and_then(|leased_tokens| leased_tokens.spend(check.hits, now)) {
            return Some((verdict, Source::Lease));
        }
        let denial = self.denial.as_ref()?;
        Some((denial.covers(check.hits, now)?, Source::DenialCache))
    }

    fn may_be_leased(&self, sync: SyncMode) -> bool {
        match sync {
            SyncMode::Strict => false,
            SyncMode::Leased => true,
            SyncMode::Auto => self.leased_tokens.is_some(),
        }
    }

    /// Removes the expiry of the entry's tokens, which will not be spent.
    fn end_grant(&self, expiries: &mut Expiries) {
        if let Some(leased_tokens) = &self.leased_tokens {
            expiries.remove(&leased_tokens.expiry());
        }
    }

    /// The unspent tokens of the entry.
    fn unused(self) -> Option<Unused> {
        let Self { policy, leased_tokens, .. } = self;
        leased_tokens?.unused(&policy)
    }
}

impl CounterCache {
    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.entries.allocated_bytes()
    }

    #[cfg(test)]
    pub(super) fn granted(&self) -> usize {
        self.expiries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether tokens may have to be refunded, now or later.
    pub(super) fn may_owe_refunds(&self) -> bool {
        !self.expiries.is_empty() || !self.unused_tokens.is_empty() || self.entries.is_evicting()
    }

    /// Records the demand for counters of a request that may be charged ahead.
    pub(super) fn record_demand(&mut self, request: &TagRequest, now: Instant) {
        for (cell, check) in request.checks_with_cells() {
            if !check.sync.may_lease() || check.policy.algorithm().has_own_key() {
                continue;
            }
            if check.sync == SyncMode::Auto && !self.may_be_warm(cell, check, now) {
                continue;
            }
            let new = || CacheEntry::new(check.policy);
            let Some(entry) = self.entries.get_or_insert(&cell.key, check.record, new) else { continue };
            if entry.policy != check.policy {
                let before = mem::replace(entry, CacheEntry::new(check.policy));
                before.end_grant(&mut self.expiries);
                let name = CounterName { cell: cell.key.clone(), record: check.record };
                self.unused_tokens.extend(before.unused().map(|unused| (name, unused)));
            }
            let leased_tokens = entry.leased_tokens.get_or_insert_with(|| Box::new(LeasedTokens::new(now)));
            leased_tokens.share = check.share;
            leased_tokens.record_demand(check, now);
        }
    }

    /// Counts a request for a counter of `sync: auto`; returns whether the counter may be warm.
    fn may_be_warm(&mut self, cell: &Cell, check: &Check, now: Instant) -> bool {
        let hash = self.entries.hash(&cell.key, check.record);
        check.hits.charged() > 0 && self.heat_filter.record(hash, now)
    }

    /// Decides a request, if the cache suffices.
    pub(super) fn decide(&mut self, request: &TagRequest, now: Instant) -> Option<LocalDecision> {
        if self.is_empty() {
            return None;
        }
        let (verdicts, source) = match request.charging {
            Charging::Independent => self.decide_independent(request, now)?,
            Charging::AllOrNone => self.decide_all_or_none(request, now)?,
        };
        self.record_denials(request, &verdicts);
        Some((verdicts, source))
    }

    /// Takes the hits that were denied without a call of late: earlier ones would count in a second of other hits.
    pub(super) fn take_reported(&mut self, cell: &Cell, check: &Check, now: Instant) -> u16 {
        let entry = check.applied_ban().and_then(|_| self.entry(cell, check));
        let Some(entry) = entry else { return 0 };
        let hits = mem::take(&mut entry.unreported);
        let is_recent = entry.denial.as_ref().is_some_and(|denial| denial.was_valid_of_late(now));
        if is_recent { hits } else { 0 }
    }

    /// Records denied hits of counters with bans, except while they are banned.
    fn record_denials(&mut self, request: &TagRequest, verdicts: &Verdicts) {
        for ((cell, check), (_, verdict)) in request.checks_with_cells().zip(verdicts) {
            let is_counted = check.ban.is_some() && !verdict.admitted && verdict.ban.is_none();
            if let Some(entry) = is_counted.then(|| self.entry(cell, check)).flatten() {
                let hits = u16::try_from(check.hits.charged()).unwrap_or(u16::MAX);
                entry.unreported = entry.unreported.saturating_add(hits);
            }
        }
    }

    /// Whether tokens for all counters of a request would save another one. Beside a counter that has none, each request
    /// is sent nevertheless, and tokens of the others would be refunded each time.
    pub(super) fn may_decide_all(&mut self, request: &TagRequest, now: Instant) -> bool {
        if request.checks().nth(1).is_none() {
            return true;
        }
        request.checks_with_cells().all(|(cell, check)| {
            let entry = self.entry(cell, check);
            let leased_tokens = entry.and_then(|entry| entry.leased_tokens.as_ref());
            leased_tokens
                .is_some_and(|leased_tokens| leased_tokens.wanted(check.sync, &check.policy, now).is_some())
        })
    }

    /// The tokens to charge ahead for a counter.
    pub(super) fn prefetch(&mut self, cell: &Cell, check: &Check, now: Instant) -> Option<Prefetch> {
        // Another check of the same counter in the request would find less capacity than there was.
        if check.hits.charged() == 0 || !cell.checks_once(check.record) {
            return None;
        }
        let entry = self.entry(cell, check).filter(|entry| entry.policy == check.policy)?;
        entry.leased_tokens.as_mut()?.prefetch(check.sync, &check.policy, now)
    }

    pub(super) fn forget(&mut self, cell: &Cell, check: &Check) {
        if let Some(entry) = self.entry(cell, check) {
            entry.denial = None;
            entry.leased_tokens.iter_mut().for_each(|leased_tokens| leased_tokens.prefetch_failed());
        }
    }

    /// Decides all counters of a request independently, or none.
    fn decide_independent(&mut self, request: &TagRequest, now: Instant) -> Option<LocalDecision> {
        let (mut verdicts, mut source) = (Verdicts::new(), Source::DenialCache);
        for (cell, check) in request.checks_with_cells() {
            let entry = self.entry(cell, check);
            match entry.and_then(|entry| entry.decide(check, now)) {
                Some((verdict, of_verdict)) => {
                    verdicts.push((check.descriptor, verdict));
                    if of_verdict == Source::Lease {
                        source = of_verdict;
                    }
                }
                None => {
                    self.unspend(request, &verdicts);
                    return None;
                }
            }
        }
        Some((verdicts, source))
    }

    /// Restores the tokens spent for the first checks of a request that has to be sent.
    fn unspend(&mut self, request: &TagRequest, verdicts: &Verdicts) {
        for ((cell, check), (_, verdict)) in request.checks_with_cells().zip(verdicts) {
            if verdict.admitted
                && let Some(entry) = self.entry(cell, check)
            {
                entry.leased_tokens.iter_mut().for_each(|leased_tokens| leased_tokens.unspend(check.hits));
            }
        }
    }

    /// Decides a request in which one denial keeps all counters from being charged.
    fn decide_all_or_none(&mut self, request: &TagRequest, now: Instant) -> Option<LocalDecision> {
        let mut verdicts = Verdicts::new();
        for (cell, check) in request.checks_with_cells() {
            // A precheck would be vetoed by cached verdicts that admit, which may be outdated.
            if check.veto == Veto::Always {
                return None;
            }
            let entry = self.entry(cell, check).filter(|entry| entry.policy == check.policy)?;
            let verdict = entry.denial.as_ref()?.exact(check.hits, now)?;
            verdicts.push((check.descriptor, verdict));
        }
        let is_vetoed = request.is_vetoed(verdicts.iter().map(|(_, verdict)| verdict.admitted));
        is_vetoed.then_some((verdicts, Source::DenialCache))
    }

    fn entry(&mut self, cell: &Cell, check: &Check) -> Option<&mut CacheEntry> {
        self.entries.get(&cell.key, check.record)
    }

    /// Updates a counter with the verdict of a check; `is_denial` states that the check was denied, or another one that
    /// keeps it from being charged.
    pub(super) fn learn(
        &mut self,
        cell: &Cell,
        check: &Check,
        verdict: &Verdict,
        is_denial: bool,
        prefetched: u32,
        sent_at: Instant,
    ) {
        let denial = if is_denial { self.denial(cell, check, verdict, sent_at) } else { None };
        let is_kept = denial.is_some() || prefetched > 0;
        let new = || is_kept.then(|| CacheEntry::new(check.policy));
        let entry = self.entries.find(&cell.key, check.record, new);
        let Some(entry) = entry else { return };
        if check.hits == Hits::reset() {
            // The reset also discarded the tokens charged ahead.
            entry.end_grant(&mut self.expiries);
            *entry = CacheEntry::new(check.policy);
        }
        let name = || CounterName { cell: cell.key.clone(), record: check.record };
        if entry.policy != check.policy {
            // Neither a limit override nor a request under a rule that has changed since may discard the tokens held
            // under the current rule.
            if entry
                .leased_tokens
                .as_ref()
                .is_some_and(|leased_tokens| !leased_tokens.is_idle(&entry.policy, sent_at))
            {
                let unused = Unused::new(check, prefetched, verdict, sent_at);
                self.unused_tokens.extend(unused.map(|unused| (name(), unused)));
                return;
            }
            *entry = CacheEntry::new(check.policy);
        }
        entry.set_denial(denial, check, verdict);
        if prefetched == 0 && !entry.may_be_leased(check.sync) {
            return;
        }
        let leased_tokens = entry.leased_tokens.get_or_insert_with(|| Box::new(LeasedTokens::new(sent_at)));
        leased_tokens.share = check.share;
        let former = leased_tokens.expiry();
        let unused = leased_tokens.learn(check, verdict, prefetched, sent_at);
        self.unused_tokens.extend(unused.map(|unused| (name(), unused)));
        if prefetched > 0 {
            self.expiries.remove(&former);
            self.grant_count = self.grant_count.wrapping_add(1);
            leased_tokens.grant = self.grant_count;
            self.expiries.insert(leased_tokens.expiry(), name());
        }
    }

    /// The denial to cache for a denied check. The verdict of one check of a counter may be due to another check of the same
    /// request.
    fn denial(&mut self, cell: &Cell, check: &Check, verdict: &Verdict, sent_at: Instant) -> Option<Denial> {
        if !cell.checks_once(check.record) {
            return None;
        }
        // Before its verdict says so, it may have room again: tokens are returned, or hits are borrowed.
        let may_gain_room = check.share.is_some() || self.may_be_leased(cell, check);
        Denial::new(check, verdict, may_gain_room, sent_at)
    }

    /// Whether workers may hold tokens of a counter. One of `sync: auto` with few requests in this worker is not
    /// worth another request when others return tokens.
    pub(super) fn may_be_leased(&mut self, cell: &Cell, check: &Check) -> bool {
        let entry = self.entry(cell, check);
        entry.map_or(check.sync == SyncMode::Leased, |entry| entry.may_be_leased(check.sync))
    }

    /// Tokens held for a counter.
    pub(super) fn held_hits(&mut self, cell: &Cell, check: &Check, now: Instant) -> u64 {
        let leased_tokens = self.entry(cell, check).and_then(|entry| entry.leased_tokens.as_ref());
        leased_tokens.map_or(0, |leased_tokens| leased_tokens.held(now))
    }

    /// Takes the unused tokens of evicted counters.
    pub(super) fn collect_evicted(&mut self) {
        for (name, entry) in self.entries.take_evicted() {
            entry.end_grant(&mut self.expiries);
            self.unused_tokens.extend(entry.unused().map(|unused| (name, unused)));
        }
    }

    /// Refunds of tokens that were not spent in time, or of all unspent ones; at most [`MAX_REFUNDS`] of them.
    pub(super) fn refunds_due(&mut self, now: Instant, of_all: bool) -> Requests {
        self.entries.evict(if of_all { usize::MAX } else { MAX_REFUNDS });
        self.collect_evicted();
        while self.unused_tokens.len() < MAX_REFUNDS
            && let Some(first) = self.expiries.first_entry().filter(|first| of_all || first.key().0 <= now)
        {
            let (expiry, name) = first.remove_entry();
            let unused = self.entries.get(&name.cell, name.record).and_then(|entry| {
                let policy = entry.policy;
                let leased_tokens = entry.leased_tokens.as_mut().filter(|held| held.expiry() == expiry);
                leased_tokens?.unused(&policy)
            });
            self.unused_tokens.extend(unused.map(|unused| (name, unused)));
        }
        self.collect_evicted();
        let mut requests = Requests::new();
        let first = self.unused_tokens.len().saturating_sub(MAX_REFUNDS);
        for (CounterName { cell, record }, unused) in self.unused_tokens.drain(first..) {
            if let Some(hits) = unused.hits(now) {
                let check = Check { share: unused.share, ..Check::own(record, unused.policy, hits) };
                requests.push(TagRequest::new(Charging::Independent, cell, check));
            }
        }
        requests
    }
}
