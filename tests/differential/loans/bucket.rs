//! Loans of a bucket that hits empty while they are made.

use super::transactions::{TIME_LIMIT, peer};
use super::*;

/// Charges a counter once by a store of its own, on another thread: connections of this one's runtime stand still meanwhile.
fn hit(redis: &Redis, call: &TagRequest, micros: u64) -> bool {
    let hit = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = redis.store().at_time(at(micros));
            Subject::redis(store).decide(at(micros), call).await[0].admitted
        })
    };
    thread::scope(|scope| scope.spawn(hit).join().expect("decided"))
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
    let store = Store::new(redis.store().at_time(at(micros)));
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
