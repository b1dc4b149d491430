//! Transactions on loans: their steps, what each gives, and repeated calls.

use tollgate::store::loans::Loans;
use tollgate::store::loans::regions::message::{Holding, Reply};
use tollgate::store::loans::regions::{ledger::Loan, protocol::Share, table::RegionName};

use super::*;
use crate::differential::replay_all;

pub(super) const TIME_LIMIT: Duration = Duration::from_secs(20);

/// A step of a transaction on one of the counters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// Requests a loan from a peer.
    Request { peer: usize, hold: u32, want: u32 },
    /// Takes a peer's reply to the last request, or to an earlier one.
    Take { peer: usize, amount: u32, added: u32, is_late: bool, label_step: i64, cuts: bool },
    /// Answers a peer that has all of its loans, or none.
    Lend { peer: usize, need: u32, hold: u32, want: u32, has_all: bool, label_step: i64 },
    /// Reads the counter.
    Read,
}

pub(super) fn moves() -> impl Strategy<Value = Move> {
    let amount = prop_oneof![0..=3_u32, 0..=40_u32, 0..=1_000_000_u32];
    let label_step = prop_oneof![6 => Just(0_i64), 1 => Just(-1), 1 => Just(1)];
    let peers = prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    prop_oneof![
        2 => (peers.clone(), amount.clone(), amount.clone())
            .prop_map(|(peer, hold, want)| Move::Request { peer, hold, want }),
        3 => (peers.clone(), amount.clone(), amount.clone(), proptest::bool::weighted(0.2), label_step.clone(), any::<bool>())
            .prop_map(|(peer, amount, added, is_late, label_step, cuts)| Move::Take {
                peer, amount, added, is_late, label_step, cuts
            }),
        2 => (peers, 0..=3_u32, amount.clone(), amount, any::<bool>(), label_step)
            .prop_map(|(peer, need, hold, want, has_all, label_step)| Move::Lend {
                peer, need, hold, want, has_all, label_step
            }),
        1 => Just(Move::Read),
    ]
}

pub(super) fn peer(at: usize) -> RegionName {
    ["east", "west"][at].parse().expect("a name")
}

/// The label some steps after the present one.
fn label_after(loans: &Loans, steps: i64) -> u64 {
    let step = loans.terms.kind.label_step().unwrap_or(0).cast_signed();
    loans.now.label.saturating_add_signed(steps * step)
}

/// A peer's reply to the last request, or to an earlier one.
fn reply_of(
    loans: &Loans,
    at: usize,
    (amount, added): (u32, u32),
    is_late: bool,
    label_step: i64,
    cuts: bool,
) -> Reply {
    let account = loans.ledger.account(&peer(at)).cloned().unwrap_or_default();
    let id = account.outstanding.saturating_sub(u64::from(is_late));
    // What the peer has of this region: half of the first loan, or whatever it was lent.
    let part = if cuts { 2 } else { 1 };
    let holding = |loan: &Loan| Holding { id: loan.id, amount: loan.amount / part };
    let have = account.lent.iter().take(4).map(holding).collect();
    let resolved = if cuts { account.seen } else { 0 };
    let level = loans.terms.kind.full_level() / 2;
    let from = if loans.terms.kind.label_step().is_some() { label_after(loans, label_step) } else { 0 };
    Reply {
        id,
        label: label_after(loans, label_step),
        from,
        amount,
        added: added.min(amount),
        level,
        have,
        resolved,
        spare: 0,
    }
}

/// A request of a peer that has all of its loans, or none.
fn request_of(
    loans: &Loans,
    at: usize,
    (hold, want): (u32, u32),
    has_all: bool,
    label_step: i64,
) -> LoanRequest {
    let account = loans.ledger.account(&peer(at)).cloned().unwrap_or_default();
    let holding = |loan: &Loan| Holding { id: loan.id, amount: loan.amount };
    let mut have: Vec<_> = account.lent.iter().map(holding).collect();
    have.truncate(if has_all { 4 } else { 0 });
    LoanRequest {
        id: account.seen.max(loans.now.micros) + 1,
        label: label_after(loans, label_step),
        hold,
        want,
        have,
    }
}

/// Makes a move; gives all that it can depend on, and its result.
fn make(change: Move, loans: &mut Loans) -> String {
    let before = format!("{:?} {} {} {}", loans.now, loans.used, loans.effective, loans.full_at);
    let (terms, now) = (loans.terms, loans.now);
    let result = match change {
        Move::Read => String::new(),
        Move::Request { peer: at, hold, want } => {
            let shares = [Share { peer: peer(at), hold, want }];
            let usage = loans.usage(0);
            let (requests, full_at) = protocol::request_loans(&mut loans.ledger, &terms, now, usage, &shares);
            loans.full_at = full_at;
            format!("{requests:?}")
        }
        Move::Take { peer: at, amount, added, is_late, label_step, cuts } => {
            let reply = reply_of(loans, at, (amount, added), is_late, label_step, cuts);
            let usage = loans.usage(0);
            let taken = protocol::take(&mut loans.ledger, &terms, now, usage, &peer(at), &reply);
            loans.full_at = taken.map_or(loans.full_at, |taken| taken.full_at);
            format!("{taken:?}")
        }
        Move::Lend { peer: at, need, hold, want, has_all, label_step } => {
            let request = request_of(loans, at, (hold, want), has_all, label_step);
            let usage = loans.usage_to_lend(need);
            let lent = protocol::lend(&mut loans.ledger, &terms, now, usage, &peer(at), &request);
            loans.full_at = lent.as_ref().map_or(loans.full_at, |lent| lent.full_at);
            format!("{lent:?}")
        }
    };
    format!("{before}; {result}; {:?} {}", loans.ledger, loans.full_at)
}

pub(super) async fn transact(
    subject: &Subject,
    micros: u64,
    counter: &SharedCounter,
    change: Move,
) -> String {
    let store = subject.store(at(micros));
    store.with_loans(counter, TIME_LIMIT, |loans| make(change, loans)).await.expect("the store transacts")
}

/// A clock step, the repetitions, the hits of each, and a transaction before them.
type Repeated = (u64, u16, u64, Option<Move>);

/// Repetitions of a call on a counter with loans decide like as many calls.
async fn replay_runs(
    store: &RedisStore,
    keys: CommandKeys,
    number: u64,
    (limit, steps): (LentLimit, Vec<Repeated>),
) -> usize {
    let rust = Subject::memory();
    let (mut micros, mut admitted) = (7_200_000_000_u64, 0);
    let limits = [LentLimit { has_ban: false, is_leased: false, ..limit }];
    for (step, times, hits, change) in steps {
        micros += step;
        let name = format!("loan-runs-{number}");
        let call = call_of(&name, Charging::Independent, &limits, &[(0, Hits::charge(hits), Veto::Alone)]);
        let store = store.clone().at_time(at(micros));
        if let Some(change) = change {
            let LentLimit { policy, share, .. } = limit;
            let record = RecordId::numbered(0, policy.algorithm());
            let counter = SharedCounter { cell: call.cells[0].key.clone(), record, policy, share };
            let expected = transact(&rust, micros, &counter, change).await;
            let found = transact(&Subject::redis(store.clone()), micros, &counter, change).await;
            assert_eq!(expected, found);
        }
        let run = Run { request: &call, times, prefetches: &[], reported: &[] };
        let mut found = store.decide_runs(&[run], keys).await.expect("the store decides");
        let found = found.remove(0).expect("the run is decided").verdicts;
        for verdicts in &found {
            assert_eq!(vec![verdicts[0].1], rust.decide(at(micros), &call).await, "{limit:?} at {micros}");
            admitted += usize::from(verdicts[0].1.admitted);
        }
    }
    admitted
}

#[tokio::test]
async fn repeated_calls_under_loans_decide_like_their_rust_twins() {
    let (redis, store) = Redis::start_store();
    let mut runner = TestRunner::deterministic();
    let steps =
        (step_forward(), prop_oneof![Just(1_u16), 1..=40_u16], 1..=3_u64, proptest::option::of(moves()));
    let runs = (limits(), vec(steps, 1..40));
    let replayed = replay_all(&mut runner, runs, HISTORIES / 2, |number, history| {
        replay_runs(&store, redis.command_keys(number), number, history)
    });
    let admitted: usize = replayed.await.into_iter().sum();
    assert!(admitted >= 1_000, "{admitted} admitted");
}
