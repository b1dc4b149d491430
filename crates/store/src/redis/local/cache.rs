//! Accounts of counters.

use std::{collections::BTreeMap, mem};

use tokio::time::Instant;

use super::{
    denial::Denial,
    reservation::{Reserve, Unused},
    two_generation_map::{CounterName, TwoGenerationMap},
};
use crate::{
    redis::metrics::{self, Source},
    request::{Cell, Check, Requests, TagRequest, Verdicts},
};
use tollgate_core::{
    SyncMode,
    algorithm::{Charging, Policy, Prefetch, Verdict},
    descriptor::Hits,
};

/// What is known of counters.
#[derive(Debug, Default)]
pub(super) struct CounterCache {
    accounts: TwoGenerationMap<CacheEntry>,
    /// Counters that were charged ahead, by when it must be spent, in the order of the grants.
    settle: BTreeMap<(Instant, u64), CounterName>,
    grants: u64,
    /// What is to be given back.
    unused_tokens: Vec<(CounterName, Unused)>,
}

/// What is known of one counter.
#[derive(Debug)]
struct CacheEntry {
    /// By which this was found out.
    policy: Policy,
    denial: Option<Denial>,
    reserve: Option<Box<Reserve>>,
}

impl CacheEntry {
    const fn new(policy: Policy) -> Self {
        Self { policy, denial: None, reserve: None }
    }

    /// Decides an ask, if it can.
    fn decide(&mut self, ask: &Check, now: Instant) -> Option<(Verdict, Source)> {
        if self.policy != ask.policy {
            return None;
        }
        let reserve = self.reserve.as_mut().filter(|_| ask.sync == SyncMode::Leased);
        if let Some(verdict) = reserve.and_then(|reserve| reserve.spend(ask.hits, now)) {
            return Some((verdict, Source::Lease));
        }
        let denial = self.denial.as_ref()?;
        Some((denial.of(ask.hits, now)?, Source::DenialCache))
    }
}

impl CounterCache {
    pub(super) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Whether something may have to be given back, now or later.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.settle.is_empty() || !self.unused_tokens.is_empty()
    }

    /// Notes that a call comes, for those of its counters that may be charged ahead.
    pub(super) fn expect(&mut self, call: &TagRequest, now: Instant) {
        for (cell, ask) in call.checks_with_cells() {
            if ask.sync == SyncMode::Strict || ask.policy.algorithm().has_own_key() {
                continue;
            }
            let new = || CacheEntry::new(ask.policy);
            let Some(account) = self.accounts.get_or_insert(&cell.key, ask.record, new) else { continue };
            if account.policy != ask.policy {
                let before = mem::replace(account, CacheEntry::new(ask.policy));
                let name = CounterName { cell: cell.key.clone(), record: ask.record };
                self.unused_tokens.extend(before.unused().map(|unused| (name, unused)));
            }
            account.reserve.get_or_insert_with(|| Box::new(Reserve::new(now))).expect(ask.hits, now);
        }
    }

    /// Decides a call, if what is known suffices.
    pub(super) fn decide(&mut self, call: &TagRequest, now: Instant) -> Option<Verdicts> {
        if self.is_empty() {
            return None;
        }
        let (verdicts, way) = match call.charging {
            Charging::Independent => self.each(call, now)?,
            Charging::AllOrNone => (self.all_or_none(call, now)?, Source::DenialCache),
        };
        metrics::decided_locally(way);
        Some(verdicts)
    }

    /// What to charge ahead of a counter.
    pub(super) fn wish(&mut self, (cell, ask): (&Cell, &Check), now: Instant) -> Option<Prefetch> {
        // Another ask of the same counter in the call would find less than there was.
        if ask.hits.charged() == 0 || !cell.checks_once(ask.record) {
            return None;
        }
        let account =
            self.accounts.get(&cell.key, ask.record).filter(|account| account.policy == ask.policy)?;
        account.reserve.as_mut()?.wish(&ask.policy, now)
    }

    pub(super) fn forget(&mut self, (cell, ask): (&Cell, &Check)) {
        if let Some(account) = self.accounts.get(&cell.key, ask.record) {
            account.denial = None;
            account.reserve.iter_mut().for_each(|reserve| reserve.was_refused());
        }
    }

    /// Decides counters each for itself, or none of them.
    fn each(&mut self, call: &TagRequest, now: Instant) -> Option<(Verdicts, Source)> {
        let (mut verdicts, mut all_denied) = (Verdicts::new(), Source::DenialCache);
        for (cell, ask) in call.checks_with_cells() {
            let account = self.accounts.get(&cell.key, ask.record);
            match account.and_then(|account| account.decide(ask, now)) {
                Some((verdict, way)) => {
                    verdicts.push((ask.descriptor, verdict));
                    if way == Source::Lease {
                        all_denied = way;
                    }
                }
                None => {
                    self.put_back(call, &verdicts);
                    return None;
                }
            }
        }
        Some((verdicts, all_denied))
    }

    /// Puts back what was spent for the first asks of a call that has to be sent.
    fn put_back(&mut self, call: &TagRequest, verdicts: &Verdicts) {
        for ((cell, ask), (_, verdict)) in call.checks_with_cells().zip(verdicts) {
            if verdict.admitted
                && let Some(account) = self.accounts.get(&cell.key, ask.record)
            {
                account.reserve.iter_mut().for_each(|reserve| reserve.put_back(ask.hits));
            }
        }
    }

    /// Decides a call of which one denial keeps everything from being charged.
    fn all_or_none(&mut self, call: &TagRequest, now: Instant) -> Option<Verdicts> {
        let (mut verdicts, mut is_vetoed) = (Verdicts::new(), false);
        for (cell, ask) in call.checks_with_cells() {
            let account =
                self.accounts.get(&cell.key, ask.record).filter(|account| account.policy == ask.policy)?;
            let verdict = account.denial.as_ref()?.seen(ask.hits, now)?;
            is_vetoed |= ask.is_veto() && !verdict.admitted;
            verdicts.push((ask.descriptor, verdict));
        }
        is_vetoed.then_some(verdicts)
    }

    /// Takes note of what an ask came to; `is_seen` says that it was denied, or another one that keeps it from being
    /// charged.
    pub(super) fn learn(
        &mut self,
        place: (&Cell, &Check),
        verdict: &Verdict,
        is_seen: bool,
        reserved: u32,
        sent_at: Instant,
    ) {
        let (cell, ask) = place;
        // What one ask of a counter met may be due to another one of the same call.
        let denial =
            (is_seen && cell.checks_once(ask.record)).then(|| Denial::new(ask, verdict, sent_at)).flatten();
        let may_be_new = denial.is_some() || reserved > 0;
        let account = match may_be_new {
            true => self.accounts.get_or_insert(&cell.key, ask.record, || CacheEntry::new(ask.policy)),
            false => self.accounts.get(&cell.key, ask.record),
        };
        let Some(account) = account else { return };
        if ask.hits == Hits::reset() {
            // What was charged ahead is charged no more.
            *account = CacheEntry::new(ask.policy);
        }
        let name = || CounterName { cell: cell.key.clone(), record: ask.record };
        if account.policy != ask.policy {
            // What one request brought along must not cost what is held under the rule, nor must what was asked under
            // a rule that has changed since.
            if account.reserve.is_some() {
                let unused = Unused::new(&ask.policy, reserved, verdict, sent_at);
                self.unused_tokens.extend(unused.map(|unused| (name(), unused)));
                return;
            }
            *account = CacheEntry::new(ask.policy);
        }
        account.denial = denial;
        if ask.sync == SyncMode::Strict {
            return;
        }
        let reserve = account.reserve.get_or_insert_with(|| Box::new(Reserve::new(sent_at)));
        let unused = reserve.learn(&ask.policy, verdict, reserved, sent_at);
        self.unused_tokens.extend(unused.map(|unused| (name(), unused)));
        if reserved > 0 {
            self.grants = self.grants.wrapping_add(1);
            self.settle.insert((reserve.spend_by(), self.grants), name());
        }
    }

    /// Takes what was left over of counters that there was no room for any more.
    pub(super) fn harvest(&mut self) {
        for (name, account) in self.accounts.forgotten() {
            self.unused_tokens.extend(account.unused().map(|unused| (name, unused)));
        }
    }

    /// What gives back that which was charged ahead and is not spent in time.
    pub(super) fn settle(&mut self, now: Instant) -> Requests {
        while let Some(first) = self.settle.first_entry().filter(|first| first.key().0 <= now) {
            let name = first.remove();
            let unused = self.accounts.get(&name.cell, name.record).and_then(|account| {
                let policy = account.policy;
                account.reserve.as_mut()?.expired(&policy, now)
            });
            self.unused_tokens.extend(unused.map(|unused| (name, unused)));
        }
        let mut calls = Requests::new();
        for (CounterName { cell, record }, unused) in mem::take(&mut self.unused_tokens) {
            if let Some(hits) = unused.hits(now) {
                let policy = unused.policy;
                let ask =
                    Check { descriptor: 0, record, policy, hits, vetoes: false, sync: SyncMode::Strict };
                calls.push(TagRequest::new(Charging::Independent, cell, ask));
            }
        }
        calls
    }
}

impl CacheEntry {
    /// What it holds that is not spent.
    fn unused(self) -> Option<Unused> {
        let Self { policy, reserve, .. } = self;
        reserve?.unused(&policy)
    }
}
