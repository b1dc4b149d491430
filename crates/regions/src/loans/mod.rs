//! Loans between regions: loan requests to others ([`borrower`]) for counters whose share does not suffice, and answers to
//! theirs ([`Lender`]).
//!
//! The ledgers of the counters, which their store keeps, decide; a message that is lost, late, repeated or forged makes no
//! region admit more than the limit. See [`tollgate_store::loans`].

mod borrower;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};
use std::{str::FromStr as _, sync::Arc};

use tollgate_core::{RecordId, clock::Clock};
use tollgate_limiter::ActiveRules;
use tollgate_proto::tollgate::region::v1::{
    self as proto, CounterLoanRequest, CounterReply, counter_reply::Result as Outcome,
};
use tollgate_rules::{Limit, Scope};
use tollgate_store::key::CellKey;
use tollgate_store::loans::regions::message::{Holding, LoanRequest, Reply};
use tollgate_store::loans::regions::policy;
use tollgate_store::loans::regions::protocol::{self, Lent};
use tollgate_store::loans::regions::table::RegionName;
use tollgate_store::loans::{Loans, SharedCounter};

use super::{ScopedRules, announcements::LOAN_REQUESTS, metrics};

pub(super) use self::borrower::Borrower;

/// Answers loan requests with the store of the own region.
#[derive(Clone, Debug)]
pub(crate) struct Lender {
    rules: Arc<ActiveRules>,
    global: ScopedRules,
    borrower: Borrower,
}

impl Lender {
    /// Lends from the store of `borrower`.
    pub(crate) fn new(rules: Arc<ActiveRules>, borrower: Borrower) -> Self {
        Self { rules, global: ScopedRules::new(Scope::Global), borrower }
    }

    /// Answers a loan request of `peer`.
    pub(crate) async fn answer(&self, peer: &str, message: &CounterLoanRequest) -> CounterReply {
        let Ok(peer) = RegionName::from_str(peer) else { return refused(Outcome::Ignored) };
        if !self.borrower.regions.admits(peer.as_str(), LOAN_REQUESTS, Instant::now()) {
            return refused(Outcome::Busy);
        }
        let Some((record, request)) = read_request(message) else {
            return refused(Outcome::Ignored);
        };
        let Some(counter) = self.counter(message, record) else { return refused(Outcome::Rule) };
        if counter.terms().digest() != message.terms {
            return refused(Outcome::Rule);
        }
        let demand = self.borrower.watch.demand(&counter.cell, counter.record);
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
        match self.borrower.store.with_loans(&counter, LEDGER_TIMEOUT, step).await {
            Ok(Ok(lent)) => {
                metrics::lent(peer.as_str(), lent.reply.added);
                if lent.recall > 0 {
                    self.recall(counter, &peer, lent.recall);
                }
                reply_of(&lent.reply)
            }
            Ok(Err(_)) => refused(Outcome::Ignored),
            Err(_) => refused(Outcome::Unavailable),
        }
    }

    /// Recalls a part from the regions to which it was lent, for the next loan request of `peer`.
    fn recall(&self, counter: SharedCounter, peer: &RegionName, amount: u32) {
        let borrower = self.borrower.clone();
        let others: Vec<RegionName> =
            self.borrower.regions.lenders().into_iter().filter(|other| other != peer).collect();
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
            if let Ok(requests) = borrower.store.with_loans(&counter, LEDGER_TIMEOUT, step).await
                && !requests.is_empty()
            {
                borrower.send(&counter, requests, amount).await;
            }
        });
    }

    /// The counter of a loan request, if a global rule of this region has it.
    fn counter(&self, message: &CounterLoanRequest, record: RecordId) -> Option<SharedCounter> {
        let index = self.global.index(&self.rules.load()?);
        let mut found = index
            .get(&record.path())?
            .iter()
            .filter(|(_, rule)| rule.record_id() == record)
            .filter_map(|(domain, rule)| Some((CellKey::of_peer(domain, &message.cell)?, rule)));
        let (cell, rule) = found.next()?;
        let Limit::Quota { quota, .. } = &rule.limit else { return None };
        // The name of a long tag does not show its domain.
        let is_unique = found.next().is_none();
        let shares = &self.borrower.regions.shares;
        is_unique.then(|| shares.counter(*quota, &rule.policy()?, cell, record, &Clock::System))?
    }
}

/// Time limit of a transaction on a ledger.
const LEDGER_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of holdings in a message, of which a ledger has fewer.
const MAX_HOLDINGS: usize = 16;

/// The loan request of a counter.
fn request_of(counter: &SharedCounter, request: &LoanRequest) -> CounterLoanRequest {
    CounterLoanRequest {
        cell: counter.cell.as_bytes().to_vec(),
        record: counter.record.as_bytes().to_vec(),
        terms: counter.terms().digest(),
        id: request.id,
        label: request.label,
        hold: request.hold,
        want: request.want,
        have: request.have.iter().map(holding).collect(),
    }
}

/// A loan request that was received; `None` if it is malformed.
fn read_request(request: &CounterLoanRequest) -> Option<(RecordId, LoanRequest)> {
    let record = RecordId::from_bytes(request.record.as_slice().try_into().ok()?);
    let have = holdings(&request.have)?;
    Some((
        record,
        LoanRequest { id: request.id, label: request.label, hold: request.hold, want: request.want, have },
    ))
}

/// The reply that grants a loan, or less than was wanted.
fn reply_of(reply: &Reply) -> CounterReply {
    CounterReply {
        result: Outcome::Answered.into(),
        id: reply.id,
        label: reply.label,
        from: reply.from,
        amount: reply.amount,
        added: reply.added,
        level: reply.level,
        have: reply.have.iter().map(holding).collect(),
        resolved: reply.resolved,
        spare: reply.spare,
    }
}

/// A reply without an answer.
pub(super) fn refused(outcome: Outcome) -> CounterReply {
    CounterReply { result: outcome.into(), ..CounterReply::default() }
}

/// A reply that was received; `None` if it has no answer.
fn read_reply(reply: &CounterReply) -> Option<Reply> {
    if reply.result() != Outcome::Answered {
        return None;
    }
    Some(Reply {
        id: reply.id,
        label: reply.label,
        from: reply.from,
        amount: reply.amount,
        added: reply.added,
        level: reply.level,
        have: holdings(&reply.have)?,
        resolved: reply.resolved,
        spare: reply.spare,
    })
}

const fn holding(holding: &Holding) -> proto::Holding {
    proto::Holding { id: holding.id, amount: holding.amount }
}

fn holdings(holdings: &[proto::Holding]) -> Option<Vec<Holding>> {
    let read = |holding: &proto::Holding| Holding { id: holding.id, amount: holding.amount };
    (holdings.len() <= MAX_HOLDINGS).then(|| holdings.iter().map(read).collect())
}
