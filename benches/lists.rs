//! Cost of allow and deny lists per request.

use std::hint::black_box;

use divan::Bencher;
use tollgate::{
    descriptor::Entry,
    rules::{List, Listing, Lists, ValueMatch},
};

/// Deny-list entries of a domain, one for each value.
fn lists(values: impl Iterator<Item = String>) -> Lists {
    let listing = |(id, value): (usize, String)| {
        let pairs = [("api_key", &*value, ValueMatch::Pattern)];
        Listing::new(&id.to_string(), List::Deny, "edge", pairs, None).expect("valid")
    };
    Lists::new(1, values.enumerate().map(listing), [])
}

/// A request that no entry matches.
fn look_up(bencher: Bencher<'_, '_>, lists: &Lists, value: &str) {
    let entries = [Entry { key: "api_key", value }, Entry { key: "path", value: "/v1/orders" }];
    bencher.bench_local(|| {
        let (lists, entries) = (black_box(lists), black_box(&entries));
        let has_lists = lists.has_lists();
        has_lists
            && (lists.allowing("edge", entries, 0).is_some() || lists.denying("edge", entries, 0).is_some())
    });
}

#[divan::bench]
fn none(bencher: Bencher<'_, '_>) {
    look_up(bencher, &Lists::default(), "abc");
}

#[divan::bench(args = [1, 1_000])]
fn texts(bencher: Bencher<'_, '_>, entries: usize) {
    look_up(bencher, &lists((0..entries).map(|at| format!("key-{at}"))), "abc");
}

#[divan::bench(args = [1, 1_000])]
fn ranges(bencher: Bencher<'_, '_>, entries: usize) {
    let range = |at: usize| format!("10.{}.{}.0/24", at / 250, at % 250);
    look_up(bencher, &lists((0..entries).map(range)), "192.0.2.1");
}

#[divan::bench(args = [1, 1_000])]
fn patterns(bencher: Bencher<'_, '_>, entries: usize) {
    look_up(bencher, &lists((0..entries).map(|at| format!("key-{at}-*"))), "key-abc");
}
