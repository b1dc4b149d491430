//! Loans between regions: loan requests to others, and answers to theirs.
//!
//! - [`borrower`]: requests loans for counters whose share does not suffice.
//! - [`lender`]: answers loan requests.
//!
//! The ledgers of the counters, which their store keeps, decide; a message that is lost, late, repeated or forged makes no
//! region admit more than the limit. See [`tollgate_store::loans`].

mod borrower;
mod lender;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tollgate_core::RecordId;
use tollgate_store::loans::{
    SharedCounter,
    regions::message::{Holding, LoanRequest, Reply},
};

use crate::proto::tollgate::region::{
    v1 as proto,
    v1::{CounterLoanRequest, CounterReply, counter_reply::Result as Outcome},
};

pub(super) use self::{borrower::Borrower, lender::Lender};

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
