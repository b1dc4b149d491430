//! Cost of counters in Redis, as docs/concepts/algorithms.md states: bytes, and processor time for each decision.
//!
//! Prints tables; only the bytes are checked, since they do not depend on the machine:
//! `cargo test --release --test integration -- --ignored --nocapture costs::`

mod memory;
mod processor;
mod reservations;

use futures_util::{StreamExt as _, stream};
use smallvec::SmallVec;
use tollgate::SyncMode;
use tollgate::store::key::CellKey;
use tollgate::store::request::{Cell, Check};

use crate::support::prelude::*;

/// Calls that await their answers at the same time.
const IN_FLIGHT: usize = 200;

const HOUR: u64 = 3_600_000_000;

/// Limits so high that they deny nothing.
const UNREACHED_LIMIT: u32 = 1_000_000;

/// Some ten characters that no other client has.
fn client_id(number: u32) -> String {
    let mut id = format!("{:08x}{:04x}", number.wrapping_mul(0x9e37_79b1), number & 0xffff);
    id.truncate(8 + number as usize % 5);
    id
}

/// `limit` per hour; what holds places holds them for an hour.
fn hourly(algorithm: Algorithm, limit: u32) -> Policy {
    let window = Window::from_seconds(3_600).expect("in range");
    let parameters = Parameters { lease_ttl: Duration::from_secs(3_600), ..Parameters::default() };
    Policy::new(algorithm, Quota { limit: limit.into(), window }, &parameters).expect("valid")
}

/// A number of hits; for a concurrency limit, permits under a lease of their own.
fn charge(algorithm: Algorithm, hits: u32) -> Hits {
    match (algorithm, NonZeroU64::new(u64::from(hits))) {
        (Algorithm::Concurrency, Some(amount)) => Hits::Acquire { amount, lease: LeaseId::random() },
        _ => Hits::charge(u64::from(hits)),
    }
}

/// A client's request with the same hits on this many counters.
fn request(client: u32, counters: u8, policy: Policy, hits: Hits) -> TagRequest {
    let algorithm = policy.algorithm();
    let entry = Entry { key: "api_key", value: &client_id(client) };
    let mut key = CellKey::open("edge", [entry].into_iter());
    if algorithm.has_own_key() {
        key = key.dedicated(RecordId::numbered(0, algorithm));
    }
    let check = |descriptor: u8| Check {
        descriptor: usize::from(descriptor),
        record: RecordId::numbered(descriptor, algorithm),
        policy,
        hits,
        veto: Veto::Alone,
        sync: SyncMode::Strict,
        ban: None,
        share: None,
    };
    let cell = Cell { key, checks: (0..counters).map(check).collect() };
    TagRequest { cells: SmallVec::from_iter([cell]), charging: Charging::Independent, is_of_rule: false }
}

/// Has every call decided, many at a time, and checks what became of each of its checks.
async fn decide(store: &RedisStore, calls: impl Iterator<Item = TagRequest>, admitted: bool) {
    let decisions = calls.map(|call| async move { store.decide(&call).await });
    let mut decisions = stream::iter(decisions).buffer_unordered(IN_FLIGHT);
    while let Some(verdicts) = decisions.next().await {
        let verdicts = verdicts.expect("the store decides");
        assert!(verdicts.iter().all(|(_, verdict)| verdict.admitted == admitted));
    }
}

/// Seconds that the server has computed.
fn processor_time(redis: &Redis) -> f64 {
    redis.figure("cpu", "used_cpu_user") + redis.figure("cpu", "used_cpu_sys")
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
