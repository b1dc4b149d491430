//! Shares of regions under loans, in the scripts and in Rust: every verdict and every ledger the same.

use std::time::Duration;

use proptest::{prelude::*, test_runner::TestRunner};
use tollgate::{
    RecordId, SyncMode,
    algorithm::{Algorithm, Charging, Policy, RegionShare, Verdict},
    ban::{BanCheck, BanEffect, BanParameters, BanPolicy},
    descriptor::Hits,
    quota::{Quota, Unit, Window},
    store::{
        RedisStore, Store,
        loans::{
            Loans, SharedCounter,
            regions::{
                ledger::Loan,
                message::{Holding, LoanRequest, Reply},
                protocol::{self, Share},
                table::RegionName,
            },
        },
        redis::{CommandKeys, Run, ScriptClock},
        request::{TagRequest, Veto},
    },
};

use super::replay_all;
use crate::support::{
    redis::Redis,
    stores::{NumberedCheck, Subject, at, charging_with, policy},
};

/// Histories; each is some forty calls and transactions.
const HISTORIES: u64 = 320;

/// Counters of a cell that is split into segments.
const MANY: u8 = 200;

const TIME_LIMIT: Duration = Duration::from_secs(20);

/// A limit and the share of it that the region owns.
#[derive(Clone, Copy, Debug)]
struct LentLimit {
    policy: Policy,
    share: RegionShare,
    is_leased: bool,
    has_ban: bool,
}

fn limits() -> impl Strategy<Value = LentLimit> {
    let algorithm = prop_oneof![
        Just(Algorithm::FixedWindow),
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::TokenBucket)
    ];
    let limit = prop_oneof![1..=8_u32, 20..=60_u32, Just(1_000_003)];
    let seconds = prop_oneof![Just(1), 2..=7_u32, Just(60)];
    (algorithm, limit, seconds, 0..=100_u32, any::<bool>(), proptest::bool::weighted(0.2)).prop_map(
        |(algorithm, limit, seconds, part, is_leased, has_ban)| {
            let whole = policy(algorithm, limit, seconds);
            let base = u32::try_from(u64::from(limit) * u64::from(part) / 100).expect("a part");
            let quota =
                Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") };
            let share = RegionShare::new(quota, base).expect("a limit");
            LentLimit { policy: share.under(whole, base), share, is_leased, has_ban }
        },
    )
}

/// A step of a transaction on one of the counters.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// Requests a loan from a peer.
    Request { peer: usize, hold: u32, want: u32 },
    /// Takes a peer's reply to the last request, or to an earlier one.
    Take { peer: usize, amount: u32, added: u32, is_late: bool, label_step: i64, cuts: bool },
    /// Answers a peer that has all of its loans, or none.
    Lend { peer: usize, need: u32, hold: u32, want: u32, has_all: bool, label_step: i64 },
    /// Reads the counter.
    Read,
}

fn moves() -> impl Strategy<Value = Move> {
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

#[derive(Clone, Debug)]
enum Work {
    Decide(Charging, Vec<(usize, Hits, Veto)>),
    Move(usize, Move),
}

fn hits() -> impl Strategy<Value = Hits> {
    prop_oneof![
        8 => Just(Hits::ONE),
        3 => (0..=5_u64).prop_map(Hits::charge),
        1 => (1..=2_u64).prop_map(Hits::refund),
        1 => Just(Hits::reset()),
    ]
}

/// Forward only: the stores forget expired counters at different times.
fn step() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        8 => 0..=1_200_000_u64,
        2 => 0..=10_000_000_u64,
        1 => 0..=300_000_000_u64,
    ]
}

fn history() -> impl Strategy<Value = (bool, Vec<LentLimit>, Vec<(u64, Work)>)> {
    let rules = proptest::collection::vec(limits(), 1..4);
    let steps = rules.prop_flat_map(|rules| {
        let veto = prop_oneof![2 => Just(Veto::Never), 6 => Just(Veto::Alone), 1 => Just(Veto::Always)];
        let checks = proptest::collection::vec((0..rules.len(), hits(), veto), 1..4);
        let charging = prop_oneof![3 => Just(Charging::Independent), 1 => Just(Charging::AllOrNone)];
        let work = prop_oneof![
            3 => (charging, checks).prop_map(|(charging, checks)| Work::Decide(charging, checks)),
            2 => (0..rules.len(), moves()).prop_map(|(at, change)| Work::Move(at, change)),
        ];
        (Just(rules), proptest::collection::vec((step(), work), 1..80))
    });
    (proptest::bool::weighted(0.2), steps).prop_map(|(is_large, (rules, steps))| (is_large, rules, steps))
}

fn ban() -> BanCheck {
    let parameters = BanParameters { threshold: 2, interval: 4, duration: 3, ..BanParameters::default() };
    let quota = Quota { limit: 9, window: Window::of(Unit::Second) };
    BanCheck { policy: BanPolicy::new(&parameters, quota).expect("valid"), effect: BanEffect::Enforce }
}

fn call_of(
    name: &str,
    charging: Charging,
    limits: &[LentLimit],
    checks: &[(usize, Hits, Veto)],
) -> TagRequest {
    let numbered = |(at, hits, veto): &(usize, Hits, Veto)| -> (NumberedCheck, Veto) {
        ((u8::try_from(*at).expect("few"), limits[*at].policy, *hits), *veto)
    };
    let numbered: Vec<_> = checks.iter().map(numbered).collect();
    let mut call = charging_with(charging, name, &numbered);
    for check in call.cells.iter_mut().flat_map(|cell| &mut cell.checks) {
        let limit = limits[checks[check.descriptor].0];
        check.share = Some(limit.share);
        check.sync = if limit.is_leased { SyncMode::Leased } else { SyncMode::Strict };
        check.ban = limit.has_ban.then(ban);
    }
    call
}

fn peer(at: usize) -> RegionName {
    ["east", "west"][at].parse().expect("a name")
}

/// Makes a move; gives all that it can depend on, and its result.
fn make(change: Move, loans: &mut Loans) -> String {
    let before = format!("{:?} {} {} {}", loans.now, loans.used, loans.effective, loans.full_at);
    let (terms, now) = (loans.terms, loans.now);
    let label = |steps: i64| {
        now.label.saturating_add_signed(steps * terms.kind.label_step().unwrap_or(0).cast_signed())
    };
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
            let account = loans.ledger.account(&peer(at)).cloned().unwrap_or_default();
            let id = account.outstanding.saturating_sub(u64::from(is_late));
            // What the peer has of this region: half of the first loan, or whatever it was lent.
            let part = if cuts { 2 } else { 1 };
            let holding = |loan: &Loan| Holding { id: loan.id, amount: loan.amount / part };
            let have = account.lent.iter().take(4).map(holding).collect();
            let resolved = if cuts { account.seen } else { 0 };
            let level = terms.kind.full_level() / 2;
            let from = if terms.kind.label_step().is_some() { label(label_step) } else { 0 };
            let reply = Reply {
                id,
                label: label(label_step),
                from,
                amount,
                added: added.min(amount),
                level,
                have,
                resolved,
                spare: 0,
            };
            let usage = loans.usage(0);
            let taken = protocol::take(&mut loans.ledger, &terms, now, usage, &peer(at), &reply);
            loans.full_at = taken.map_or(loans.full_at, |taken| taken.full_at);
            format!("{taken:?}")
        }
        Move::Lend { peer: at, need, hold, want, has_all, label_step } => {
            let account = loans.ledger.account(&peer(at)).cloned().unwrap_or_default();
            let holding = |loan: &Loan| Holding { id: loan.id, amount: loan.amount };
            let mut have: Vec<_> = account.lent.iter().map(holding).collect();
            have.truncate(if has_all { 4 } else { 0 });
            let request = LoanRequest {
                id: account.seen.max(now.micros) + 1,
                label: label(label_step),
                hold,
                want,
                have,
            };
            let usage = loans.usage_to_lend(need);
            let lent = protocol::lend(&mut loans.ledger, &terms, now, usage, &peer(at), &request);
            loans.full_at = lent.as_ref().map_or(loans.full_at, |lent| lent.full_at);
            format!("{lent:?}")
        }
    };
    format!("{before}; {result}; {:?} {}", loans.ledger, loans.full_at)
}

async fn transact(subject: &Subject, micros: u64, counter: &SharedCounter, change: Move) -> String {
    let store = match subject {
        Subject::Memory(store, clock) => {
            clock.set(at(micros));
            Store::Memory(store.clone())
        }
        Subject::Redis(store) => Store::Redis(store.clone().with_clock(ScriptClock::Fixed(at(micros)))),
    };
    store.with_loans(counter, TIME_LIMIT, |loans| make(change, loans)).await.expect("the store transacts")
}

/// Gives the number of denied verdicts, and that of verdicts beyond the base share.
async fn replay(
    lua: &Subject,
    number: u64,
    (is_large, limits, history): (bool, Vec<LentLimit>, Vec<(u64, Work)>),
) -> (usize, usize) {
    let rust = Subject::memory();
    let name = format!("loans-{number}");
    let mut micros = 7_200_000_000_u64;
    if is_large {
        let year = policy(Algorithm::FixedWindow, 9, 31_536_000);
        let many: Vec<_> = (10..10 + MANY).map(|number| ((number, year, Hits::ONE), Veto::Alone)).collect();
        for some in many.chunks(150) {
            let call = charging_with(Charging::Independent, &name, some);
            assert_eq!(rust.decide(at(micros), &call).await, lua.decide(at(micros), &call).await);
        }
    }
    let (mut denied, mut beyond) = (0, 0);
    for (at_step, (step, work)) in history.iter().enumerate() {
        micros += step;
        let context = || format!("step {at_step} at {micros}: {limits:#?} {:#?}", &history[..=at_step]);
        match work {
            Work::Decide(charging, checks) => {
                let call = call_of(&name, *charging, &limits, checks);
                let expected = rust.decide(at(micros), &call).await;
                let found = lua.decide(at(micros), &call).await;
                assert_eq!(expected, found, "{}", context());
                let is_beyond = |((at, ..), verdict): &(&(usize, Hits, Veto), &Verdict)| {
                    verdict.admitted && verdict.used > u64::from(limits[*at].share.base())
                };
                denied += found.iter().filter(|verdict| !verdict.admitted).count();
                beyond += checks.iter().zip(&found).filter(is_beyond).count();
            }
            Work::Move(at, change) => {
                let LentLimit { policy, share, .. } = limits[*at];
                let record = RecordId::numbered(u8::try_from(*at).expect("few"), policy.algorithm());
                let call = call_of(&name, Charging::Independent, &limits, &[(*at, Hits::ONE, Veto::Alone)]);
                let cell = call.cells[0].key.clone();
                let counter = SharedCounter { cell, record, policy, share };
                let expected = transact(&rust, micros, &counter, *change).await;
                assert_eq!(expected, transact(lua, micros, &counter, *change).await, "{}", context());
            }
        }
    }
    (denied, beyond)
}

#[tokio::test]
async fn loans_are_decided_alike_in_memory_and_in_redis() {
    let redis = Redis::start();
    let lua = Subject::Redis(redis.store());
    let mut runner = TestRunner::deterministic();
    let (mut denied, mut beyond) = (0, 0);
    let replayed =
        replay_all(&mut runner, history(), HISTORIES, |number, history| replay(&lua, number, history));
    for (some_denied, some_beyond) in replayed.await {
        denied += some_denied;
        beyond += some_beyond;
    }
    assert!(denied >= 1_000 && beyond >= 100, "{denied} denied, {beyond} beyond the share");
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
        let store = store.clone().with_clock(ScriptClock::Fixed(at(micros)));
        if let Some(change) = change {
            let LentLimit { policy, share, .. } = limit;
            let record = RecordId::numbered(0, policy.algorithm());
            let counter = SharedCounter { cell: call.cells[0].key.clone(), record, policy, share };
            let expected = transact(&rust, micros, &counter, change).await;
            let found = transact(&Subject::Redis(store.clone()), micros, &counter, change).await;
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
    let redis = Redis::start();
    let store = redis.store();
    let mut runner = TestRunner::deterministic();
    let steps = (step(), prop_oneof![Just(1_u16), 1..=40_u16], 1..=3_u64, proptest::option::of(moves()));
    let runs = (limits(), proptest::collection::vec(steps, 1..40));
    let replayed = replay_all(&mut runner, runs, HISTORIES / 2, |number, history| {
        replay_runs(&store, redis.command_keys(number), number, history)
    });
    let admitted: usize = replayed.await.into_iter().sum();
    assert!(admitted >= 1_000, "{admitted} admitted");
}

/// Charges a counter once by a store of its own, on another thread: connections of this one's runtime stand still meanwhile.
fn hit(redis: &Redis, call: &TagRequest, micros: u64) -> bool {
    let hit = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = redis.store().with_clock(ScriptClock::Fixed(at(micros)));
            Subject::Redis(store).decide(at(micros), call).await[0].admitted
        })
    };
    std::thread::scope(|scope| scope.spawn(hit).join().expect("decided"))
}

/// Answers a loan request while hits empty the bucket between the read and the write of the first attempts.
async fn lend_while_hit(redis: &Redis, number: u64, hits_between: &[usize]) -> (u64, u64, usize) {
    let micros = 7_200_000_000;
    let quota = Quota { limit: 160, window: Window::of(Unit::Minute) };
    let share = RegionShare::new(quota, 160).expect("a limit");
    let whole = policy(Algorithm::TokenBucket, 160, 60);
    let limits = [LentLimit { policy: share.under(whole, 160), share, is_leased: false, has_ban: false }];
    let name = format!("lend-while-hit-{number}");
    let call = call_of(&name, Charging::Independent, &limits, &[(0, Hits::ONE, Veto::Alone)]);
    let record = RecordId::numbered(0, Algorithm::TokenBucket);
    let counter = SharedCounter { cell: call.cells[0].key.clone(), record, policy: limits[0].policy, share };
    let store = Store::Redis(redis.store().with_clock(ScriptClock::Fixed(at(micros))));
    let mut attempts = 0;
    let (level, full_level) = store
        .with_loans(&counter, TIME_LIMIT, |loans| {
            let (terms, now, usage) = (loans.terms, loans.now, loans.usage_to_lend(0));
            let request =
                LoanRequest { id: now.micros + 1, label: now.label, hold: 0, want: 80, have: Vec::new() };
            let lent =
                protocol::lend(&mut loans.ledger, &terms, now, usage, &peer(0), &request).expect("lent");
            loans.full_at = lent.full_at;
            for _ in 0..hits_between.get(attempts).copied().unwrap_or(0) {
                assert!(hit(redis, &call, micros), "a hit of a bucket that is not empty");
            }
            attempts += 1;
            (lent.reply.level, terms.kind.full_level())
        })
        .await
        .expect("the store transacts");
    (level, full_level, attempts)
}

#[tokio::test]
async fn a_loan_of_a_bucket_brings_no_tokens_that_hits_take_while_it_is_made() {
    let redis = Redis::start();
    let (level, full, attempts) = lend_while_hit(&redis, 0, &[0]).await;
    // Levels are rounded down.
    let most = full - full / 16;
    assert!((most - 2..=most).contains(&level) && attempts == 1, "{level} of {full} in {attempts} attempts");
    // Ten of 160 hits are the reserve.
    let (level, full, attempts) = lend_while_hit(&redis, 1, &[9]).await;
    assert_eq!(attempts, 1, "hits within the reserve");
    assert!(level <= full * 151 / 160, "{level} of {full}, with 151 of 160 tokens left");
    let (level, full, attempts) = lend_while_hit(&redis, 2, &[30, 30]).await;
    assert_eq!(attempts, 3, "with fewer tokens left it is made again");
    assert!(level <= full * 100 / 160, "{level} of {full}, with 100 of 160 tokens left");
}
