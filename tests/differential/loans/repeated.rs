//! Repeated calls on a counter with loans.

use proptest::{prelude::*, test_runner::TestRunner};
use tollgate::{
    RecordId,
    algorithm::Charging,
    descriptor::Hits,
    store::{
        RedisStore,
        loans::SharedCounter,
        redis::{CommandKeys, Run, ScriptClock},
        request::Veto,
    },
};

use super::{
    HISTORIES, LentLimit, call_of, limits, step,
    transactions::{Move, moves, transact},
};
use crate::{
    differential::replay_all,
    support::{
        redis::Redis,
        stores::{Subject, at},
    },
};

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
