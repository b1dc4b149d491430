//! The memory store: one decision on one counter, on one thread and on two at once.

use divan::{Bencher, black_box};
use tollgate::{
    RecordId, SyncMode,
    algorithm::{Algorithm, Charging, Parameters, Policy},
    clock::Clock,
    descriptor::{Entry, Hits},
    quota::{Quota, Unit, Window},
    store::{
        MemoryStore,
        key::CellKey,
        request::{Check, TagRequest, Veto},
    },
};

fn calls(count: usize) -> Vec<TagRequest> {
    let quota = Quota { limit: u32::MAX.into(), window: Window::of(Unit::Hour) };
    let policy = Policy::new(Algorithm::FixedWindow, quota, &Parameters::default()).expect("valid");
    let record = RecordId::alone(Algorithm::FixedWindow);
    let check = Check {
        descriptor: 0,
        record,
        policy,
        hits: Hits::ONE,
        veto: Veto::Alone,
        sync: SyncMode::Strict,
        ban: None,
        share: None,
    };
    let call = |at: usize| {
        let value = format!("client-{at}");
        let key = CellKey::open("edge", [Entry { key: "api_key", value: &value }].into_iter());
        TagRequest::new(Charging::Independent, key, check)
    };
    (0..count).map(call).collect()
}

#[divan::bench(args = [1, 100_000], threads = [1, 2])]
fn decide(bencher: Bencher<'_, '_>, keys: usize) {
    let store = MemoryStore::new(1_000_000, Clock::System);
    let calls = calls(keys);
    calls.iter().for_each(|call| drop(store.decide(call)));
    bencher
        .with_inputs(|| &calls[fastrand::usize(..keys)])
        .bench_values(|call| store.decide(black_box(call)));
}
