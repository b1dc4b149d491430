//! Answers to the loan requests of other regions.

use std::{collections::HashMap, str::FromStr as _, sync::Arc};

use parking_lot::Mutex;
use tollgate_core::{RecordId, clock::Clock};
use tollgate_limiter::{ActiveRules, OwnShares};
use tollgate_rules::{Limit, Rule, Rules, Scope};
use tollgate_store::{
    Store,
    key::CellKey,
    loans::{
        Loans, ShareWatch, SharedCounter,
        regions::{
            policy::{self, LoanRequestBudgets},
            protocol::{self, Lent},
            table::RegionName,
        },
    },
};

use super::{Borrower, LEDGER_TIMEOUT, wire};
use crate::{
    proto::tollgate::region::v1::{CounterLoanRequest, CounterReply, counter_reply::Result as Outcome},
    regions::{Regions, metrics},
};

/// Global rules of one version with their domains, by record.
type RuleIndex = HashMap<RecordId, Vec<(Box<str>, Arc<Rule>)>>;

/// Rules, and their index.
type Indexed = (Arc<Rules>, Arc<RuleIndex>);

/// Answers loan requests with the store of the own region.
#[derive(Clone, Debug)]
pub(in crate::regions) struct Lender {
    regions: Regions,
    rules: Arc<ActiveRules>,
    shares: OwnShares,
    store: Store,
    watch: ShareWatch,
    borrower: Borrower,
    index: Arc<Mutex<Option<Indexed>>>,
    budgets: Arc<Mutex<LoanRequestBudgets>>,
}

impl Lender {
    pub(in crate::regions) fn new(
        regions: Regions,
        rules: Arc<ActiveRules>,
        shares: OwnShares,
        (store, watch, borrower): (Store, ShareWatch, Borrower),
    ) -> Self {
        let budgets = Arc::default();
        Self { regions, rules, shares, store, watch, borrower, index: Arc::default(), budgets }
    }

    /// Answers a loan request of `peer`.
    pub(in crate::regions) async fn answer(&self, peer: &str, message: &CounterLoanRequest) -> CounterReply {
        let Ok(peer) = RegionName::from_str(peer) else { return wire::refused(Outcome::Ignored) };
        if !self.budgets.lock().take(&peer, Clock::System.now().as_micros()) {
            return wire::refused(Outcome::Busy);
        }
        let Some((record, request)) = wire::read_request(message) else {
            return wire::refused(Outcome::Ignored);
        };
        let Some(counter) = self.counter(message, record) else { return wire::refused(Outcome::Rule) };
        if counter.terms().digest() != message.terms {
            return wire::refused(Outcome::Rule);
        }
        let demand = self.watch.demand(&counter.cell, counter.record);
        let step = |loans: &mut Loans| {
            let need = policy::need(&loans.terms, loans.now, loans.used, &demand);
            let usage = loans.usage_to_lend(need);
            let Loans { ledger, terms, now, .. } = &mut *loans;
            let lent = protocol::lend(ledger, terms, *now, usage, &peer, &request);
            if let Ok(Lent { full_at, .. }) = &lent {
                loans.full_at = *full_at;
            }
            lent
        };
        match self.store.with_loans(&counter, LEDGER_TIMEOUT, step).await {
            Ok(Ok(lent)) => {
                metrics::lent(peer.as_str(), lent.reply.added);
                if lent.recall > 0 {
                    self.recall(counter, &peer, lent.recall);
                }
                wire::reply_of(&lent.reply)
            }
            Ok(Err(_)) => wire::refused(Outcome::Ignored),
            Err(_) => wire::refused(Outcome::Unavailable),
        }
    }

    /// Recalls a part from the regions to which it was lent, for the next loan request of `peer`.
    fn recall(&self, counter: SharedCounter, peer: &RegionName, amount: u32) {
        let (borrower, store) = (self.borrower.clone(), self.store.clone());
        let others: Vec<RegionName> =
            self.regions.lenders().into_iter().filter(|other| other != peer).collect();
        tokio::spawn(async move {
            let step = |loans: &mut Loans| {
                let usage = loans.usage(0);
                let Loans { ledger, terms, now, .. } = &mut *loans;
                if now.micros < ledger.claim_until {
                    return Vec::new();
                }
                let shares = policy::recall(ledger, *now, amount, others.iter());
                if shares.is_empty() {
                    return Vec::new();
                }
                let (requests, full_at) = protocol::request_loans(ledger, terms, *now, usage, &shares);
                policy::claim(ledger, *now, 0);
                loans.full_at = full_at;
                requests
            };
            if let Ok(requests) = store.with_loans(&counter, LEDGER_TIMEOUT, step).await
                && !requests.is_empty()
            {
                borrower.send(&counter, requests, amount).await;
            }
        });
    }

    /// The counter of a loan request, if a global rule of this region has it.
    fn counter(&self, message: &CounterLoanRequest, record: RecordId) -> Option<SharedCounter> {
        let index = self.index()?;
        let mut found = index
            .get(&record)?
            .iter()
            .filter_map(|(domain, rule)| Some((CellKey::of_peer(domain, &message.cell)?, rule)));
        let (cell, rule) = found.next()?;
        let Limit::Quota { quota, .. } = &rule.limit else { return None };
        // The name of a long tag does not show its domain.
        let is_unique = found.next().is_none();
        is_unique.then(|| self.shares.counter(*quota, &rule.policy()?, cell, record, &Clock::System))?
    }

    /// The global rules, indexed once for each version.
    fn index(&self) -> Option<Arc<RuleIndex>> {
        let rules = self.rules.load()?;
        let mut index = self.index.lock();
        if let Some((known, index)) = &*index
            && Arc::ptr_eq(known, &rules)
        {
            return Some(Arc::clone(index));
        }
        let mut global = RuleIndex::new();
        for domain in rules.domains() {
            for rule in domain.root.rules().filter(|rule| rule.scope == Scope::Global) {
                global.entry(rule.record_id()).or_default().push((domain.name.clone(), Arc::clone(rule)));
            }
        }
        let made = Arc::new(global);
        *index = Some((rules, Arc::clone(&made)));
        Some(made)
    }
}
