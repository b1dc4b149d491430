//! The name of a counter's cell.

use divan::{Bencher, black_box};
use tollgate::{descriptor::Entry, store::key::CellKey};

fn encode(bencher: Bencher<'_, '_>, entries: &[(&str, &str)]) {
    let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
    bencher.bench_local(|| CellKey::open(black_box("edge"), black_box(&entries).iter().copied()));
}

#[divan::bench]
fn short(bencher: Bencher<'_, '_>) {
    encode(bencher, &[("api_key", "abc")]);
}

#[divan::bench]
fn three_entries(bencher: Bencher<'_, '_>) {
    encode(bencher, &[("api_key", "abc"), ("remote_address", "10.1.2.3"), ("path", "/v1/orders")]);
}

/// Beyond the length at which names are hashed.
#[divan::bench]
fn long_and_hashed(bencher: Bencher<'_, '_>) {
    encode(bencher, &[("token", &"a".repeat(300))]);
}

#[divan::bench]
fn escaped(bencher: Bencher<'_, '_>) {
    encode(bencher, &[("path", "/search?q={a b},{c}|100%")]);
}

/// The slot of a cluster that a name's hash tag selects.
#[divan::bench]
fn slot(bencher: Bencher<'_, '_>) {
    let key = CellKey::open("edge", [Entry { key: "api_key", value: "abc" }].into_iter());
    bencher.bench_local(|| black_box(&key).slot());
}
