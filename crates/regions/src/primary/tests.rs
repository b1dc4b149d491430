//! Answers of the primary region to calls that a hostile region may send, and the change of the primary region.

use std::time::{Duration, Instant};
use std::{num::NonZeroU64, sync::Arc};

use tollgate_core::algorithm::{Algorithm, Charging, Parameters, Policy};
use tollgate_core::quota::{Quota, Unit, Window};
use tollgate_core::{RecordId, descriptor::Hits, lease::LeaseId};
use tollgate_fixtures::{active, counter, memory_store, region_table};
use tollgate_limiter::{ActiveRules, OwnShares};
use tollgate_proto::tollgate::region::v1::{
    PrimaryCall, PrimaryCheck, PrimaryReply, primary_reply::Result as Outcome,
};
use tollgate_rules::{
    OverrideId, OverrideKey, RegionTable, RuleOverride, RuleOverrides, config::read_regions,
};
use tollgate_store::key::CellKey;
use tollgate_store::request::{Check, TagRequest};

use super::{Primacy, PrimaryRole, PrimaryServer, wire};
use crate::{Regions, tests::regions};

const RULES: &str = "domain: d\ndescriptors:\n\
    - {key: k, rate_limit: {unit: year, requests_per_unit: 5, scope: primary}}\n\
    - {key: log, rate_limit: {unit: year, requests_per_unit: 5, scope: primary, algorithm: sliding_window_log}}\n\
    - {key: c, rate_limit: {requests_per_unit: 5, scope: primary, algorithm: concurrency}}\n\
    - {key: o, rate_limit: {unit: year, requests_per_unit: 5, scope: primary, overdraft: true}}\n\
    - {key: r, rate_limit: {unit: year, requests_per_unit: 5}}\n\
    - {key: g, rate_limit: {unit: year, requests_per_unit: 5, scope: global}}\n";

/// The answers of `us` by a table whose primary region is `primary`.
struct Bench {
    regions: Regions,
    server: PrimaryServer,
    rules: Arc<ActiveRules>,
}

fn bench(primary: &str) -> Bench {
    let regions = regions(primary, &["eu", "us"], OwnShares::default());
    let rules = active(RULES);
    let server = PrimaryServer::new(regions.clone(), Arc::clone(&rules), memory_store());
    Bench { regions, server, rules }
}

impl Bench {
    /// The counter of the rule for `key`.
    fn counter(&self, key: &'static str, value: &str) -> (CellKey, RecordId) {
        counter(&self.rules, key, value)
    }

    /// A call of another region about such a counter. The policy is not sent.
    fn call(&self, key: &'static str, hits: Hits) -> PrimaryCall {
        call(self.counter(key, "v"), hits)
    }

    async fn answer(&self, call: PrimaryCall) -> PrimaryReply {
        self.server.answer("eu", &[call]).await.remove(0)
    }

    /// Whether the hits pass.
    async fn passes(&self, key: &'static str, hits: Hits) -> bool {
        let reply = self.answer(self.call(key, hits)).await;
        assert_eq!(reply.result(), Outcome::Decided, "{reply:?}");
        reply.verdicts[0].admitted
    }
}

fn call((cell, record): (CellKey, RecordId), hits: Hits) -> PrimaryCall {
    let quota = Quota { limit: u32::MAX.into(), window: Window::of(Unit::Second) };
    let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
    let request = TagRequest::new(Charging::Independent, cell, Check::own(record, policy, hits));
    wire::call_of(&request, Duration::from_secs(1))
}

fn hits(amount: u64) -> NonZeroU64 {
    NonZeroU64::new(amount).expect("not 0")
}

#[tokio::test]
async fn the_limit_of_the_primary_region_decides_for_each_algorithm() {
    let bench = bench("us");
    for key in ["k", "log", "o"] {
        for at in 0..7 {
            assert_eq!(bench.passes(key, Hits::ONE).await, at < 5, "{key}: {at}");
        }
        assert!(bench.passes(key, Hits::Refund(hits(1))).await);
    }
    let leases: Vec<_> = (0..6).map(|_| LeaseId::random()).collect();
    for (at, lease) in leases.iter().enumerate() {
        let acquire = Hits::Acquire { amount: hits(1), lease: *lease };
        assert_eq!(bench.passes("c", acquire).await, at < 5);
    }
    bench.passes("c", Hits::Release(leases[0])).await;
    assert!(bench.passes("c", Hits::Acquire { amount: hits(1), lease: leases[5] }).await, "one was released");
}

#[tokio::test]
async fn only_calls_about_counters_of_the_primary_region_are_decided() {
    let bench = bench("us");
    let (cell, record) = bench.counter("k", "v");
    let named = |name: &[u8]| {
        let mut call = bench.call("k", Hits::ONE);
        call.checks[0].cell = name.to_vec();
        call
    };
    let mut of_other = bench.call("k", Hits::ONE);
    of_other.checks[0].record = bench.counter("log", "v").1.as_bytes().to_vec();
    for refused in [
        bench.call("r", Hits::ONE),
        bench.call("g", Hits::ONE),
        named(b"{d|k=v}"),
        named(b"{~e|k=v}"),
        named(b"{tollgate-rules}head"),
        named(b"{~d|k=v}~utilization"),
        of_other,
    ] {
        assert_eq!(bench.answer(refused.clone()).await.result(), Outcome::Rule, "{refused:?}");
    }
    assert_eq!(bench.answer(call((cell, record), Hits::ONE)).await.result(), Outcome::Decided);
}

#[tokio::test]
async fn malformed_calls_and_absurd_amounts_are_refused() {
    let bench = bench("us");
    let good = bench.call("k", Hits::ONE);
    let with = |check: PrimaryCheck| PrimaryCall { checks: vec![check], ..good.clone() };
    let check = good.checks[0].clone();
    let other = call(bench.counter("k", "other"), Hits::ONE).checks.remove(0);
    let lease = LeaseId::random();
    for refused in [
        PrimaryCall::default(),
        PrimaryCall { checks: vec![check.clone(); 33], ..good.clone() },
        PrimaryCall { checks: vec![check.clone(), other], ..good.clone() },
        with(PrimaryCheck { record: vec![1; 7], ..check.clone() }),
        with(PrimaryCheck { amount: u64::MAX, ..check.clone() }),
        with(PrimaryCheck { operation: 77, ..check.clone() }),
        bench.call("k", Hits::Overdraw(hits(6))),
        bench.call("k", Hits::Acquire { amount: hits(1), lease }),
        bench.call("c", Hits::Acquire { amount: hits(1_001), lease }),
        bench.call("c", Hits::ONE),
    ] {
        assert_eq!(bench.answer(refused.clone()).await.result(), Outcome::Malformed, "{refused:?}");
    }
    assert!(bench.passes("k", Hits::Overdraw(hits(5))).await, "what passed while the region was away");
    assert!(!bench.passes("o", Hits::Overdraw(hits(6))).await, "a rule with an overdraft counts in full");
}

#[tokio::test]
async fn another_region_than_the_primary_one_decides_nothing() {
    let bench = bench("eu");
    assert_eq!(bench.answer(bench.call("k", Hits::ONE)).await.result(), Outcome::Role);
}

#[tokio::test]
async fn calls_of_a_region_beyond_the_bound_of_a_second_are_refused() {
    let (bench, now) = (bench("us"), Instant::now());
    let taken = |peer, now| (0..20_000).filter(|_| bench.regions.admits_call(peer, now)).count();
    assert_eq!(taken("eu", now), 10_000);
    assert_eq!(taken("eu", now + Duration::from_millis(999)), 0);
    assert_eq!(taken("ap", now + Duration::from_millis(999)), 10_000, "another region has its own bound");
    let reply = bench.answer(bench.call("k", Hits::ONE)).await;
    assert!([Outcome::Busy, Outcome::Decided].contains(&reply.result()), "a second may have passed");
    assert_eq!(taken("eu", now + Duration::from_secs(9)), 10_000);
}

#[tokio::test]
async fn overrides_of_the_primary_region_decide() {
    let bench = bench("us");
    let stated = |id, key: &[(&str, &str)], limit: &str| {
        Arc::new(RuleOverride {
            id: OverrideId(id),
            domain: "d".into(),
            rule: "k".into(),
            key: OverrideKey::new(key.iter().copied()).expect("valid"),
            rate_limit: limit.into(),
            ends_at_ms: None,
        })
    };
    let of_key = stated(1, &[("k", "v")], "{\"requests_per_unit\": 1}");
    let of_rule = stated(2, &[], "{\"requests_per_unit\": 2}");
    let overrides = RuleOverrides { revision: 1, all: [of_key, of_rule].into() };
    bench.rules.override_rules(Arc::new(overrides));
    for (value, limit) in [("v".to_owned(), 1), ("w".to_owned(), 2), ("long".repeat(100), 2)] {
        for at in 0..3 {
            let reply = bench.answer(call(bench.counter("k", &value), Hits::ONE)).await;
            assert_eq!(reply.verdicts[0].admitted, at < limit, "{value}: {at}");
        }
    }
}

fn table(generation: u32, primary: &str) -> RegionTable {
    let text = region_table(generation, primary, &[("us", 1), ("eu", 1)]);
    read_regions("regions.yaml", text.as_bytes()).expect("valid")
}

/// The role of an instance of `us` that starts with the table and the record of its region, and the next record.
fn started((generation, primary): (u32, &str), record: &str) -> (PrimaryRole, Option<String>) {
    let table = table(generation, primary);
    let mut primacy = Primacy::start("us", &table, true);
    let next = primacy.take_over("us", &table, record);
    (primacy.role("us", &table), next)
}

#[test]
fn an_instance_that_starts_decides_only_if_no_other_region_may_and_records_the_last_table() {
    use PrimaryRole::{Absent, Other, Own, Pending};
    for (stated, record, role, next) in [
        ((1, "us"), "", Own, Some("1 us confirmed")),
        ((2, "us"), "", Pending, Some("2 us pending")),
        ((2, "us"), "1 eu confirmed", Pending, Some("2 us pending")),
        ((2, "us"), "2 us pending", Pending, None),
        ((2, "us"), "2 us confirmed", Own, None),
        ((2, "us"), "3 eu confirmed", Pending, None),
        ((3, "us"), "2 us confirmed", Own, Some("3 us confirmed")),
        ((3, "us"), "2 us pending", Pending, Some("3 us pending")),
        // A table between them may have named another region.
        ((4, "us"), "2 us confirmed", Pending, Some("4 us pending")),
        ((3, "us"), "4 us confirmed", Own, None),
        ((3, "us"), "4 us pending", Pending, None),
        ((1, "us"), "2 eu confirmed", Pending, None),
        ((2, "us"), "2 us confirmed with a word of later versions", Own, Some("2 us confirmed")),
        ((2, "us"), "unreadable", Pending, None),
        ((2, "eu"), "1 us confirmed", Other, Some("2 eu confirmed")),
        ((2, ""), "", Absent, None),
    ] {
        let (found, written) = started(stated, record);
        assert_eq!((found, written.as_deref()), (role, next), "{stated:?} {record}");
    }
    let table = table(2, "us");
    assert_eq!(Primacy::start("us", &table, false).role("us", &table), Own, "no record is kept");
}

#[test]
fn one_instance_confirms_the_role_for_all_of_its_region() {
    let (former, next) = (table(1, "eu"), table(2, "us"));
    let mut instances = [Primacy::default(), Primacy::default()];
    let mut record = "1 eu confirmed".to_owned();
    for instance in &mut instances {
        instance.change("us", &former, &next);
        record = instance.take_over("us", &next, &record).unwrap_or(record);
    }
    assert_eq!(record, "2 us pending");
    instances[0].is_pending = false;
    let confirmed = instances[0].take_over("us", &next, &record).expect("a new record");
    assert_eq!(instances[1].role("us", &next), PrimaryRole::Pending);
    assert_eq!(instances[1].take_over("us", &next, &confirmed), None);
    assert_eq!(instances[1].role("us", &next), PrimaryRole::Own);
}

/// Roles of `us` while the tables name these primary regions, one after the other.
fn roles(named: &[&str]) -> (Primacy, Vec<PrimaryRole>) {
    let (mut primacy, mut roles, mut active) = (Primacy::default(), Vec::new(), None);
    for (generation, primary) in (1..).zip(named) {
        let next = table(generation, primary);
        if let Some(former) = &active {
            primacy.change("us", former, &next);
        }
        roles.push(primacy.role("us", &next));
        active = Some(next);
    }
    (primacy, roles)
}

#[test]
fn a_region_is_the_primary_one_at_start_if_the_table_names_it_and_a_wait_ends_with_the_role() {
    use PrimaryRole::{Absent, Other, Own, Pending};
    for (named, expected) in [
        (&[""][..], &[Absent][..]),
        (&["eu"], &[Other]),
        (&["us"], &[Own]),
        // There was no former one.
        (&["", "us"], &[Absent, Own]),
        (&["eu", "us", "eu", "us"], &[Other, Pending, Other, Pending]),
    ] {
        assert_eq!(roles(named).1, expected, "{named:?}");
    }
}

#[test]
fn a_region_that_becomes_the_primary_one_waits_until_no_other_calls_the_former_one() {
    let (mut primacy, roles) = roles(&["eu", "us", "us"]);
    assert_eq!(roles, [PrimaryRole::Other, PrimaryRole::Pending, PrimaryRole::Pending]);
    primacy.is_pending = false;
    assert_eq!(primacy.role("us", &table(3, "us")), PrimaryRole::Own);
    primacy.change("us", &table(3, "us"), &table(4, "us"));
    assert_eq!(primacy.role("us", &table(4, "us")), PrimaryRole::Own);
    primacy.change("us", &table(4, "us"), &table(5, "eu"));
    assert_eq!(primacy.role("us", &table(5, "eu")), PrimaryRole::Other, "a former one ends at once");
}

#[test]
fn an_instance_that_missed_a_table_waits_until_its_region_is_confirmed() {
    let (former, next) = (table(1, "us"), table(3, "us"));
    // The table between them named `eu`, and other instances of `us` had it or not.
    for (record, has_role) in [
        ("1 us confirmed", PrimaryRole::Pending),
        ("2 eu confirmed", PrimaryRole::Pending),
        ("3 us pending", PrimaryRole::Pending),
        ("2 us confirmed", PrimaryRole::Own),
        ("3 us confirmed", PrimaryRole::Own),
    ] {
        let mut primacy = Primacy::start("us", &former, true);
        primacy.take_over("us", &former, "1 us confirmed");
        assert_eq!(primacy.role("us", &former), PrimaryRole::Own);
        primacy.change("us", &former, &next);
        assert_eq!(primacy.role("us", &next), PrimaryRole::Pending, "at once");
        let written = primacy.take_over("us", &next, record).unwrap_or_else(|| record.to_owned());
        assert_eq!(primacy.role("us", &next), has_role, "{record}");
        let state = if has_role == PrimaryRole::Own { "3 us confirmed" } else { "3 us pending" };
        assert_eq!(written, state, "{record}");
        primacy.is_pending = false;
        assert_eq!(primacy.role("us", &next), PrimaryRole::Own, "all regions have the table");
    }
    let mut primacy = Primacy::default();
    primacy.change("us", &table(1, ""), &next);
    assert_eq!(primacy.role("us", &next), PrimaryRole::Pending, "the first table named none");
    primacy.change("us", &next, &table(7, "eu"));
    assert_eq!(primacy.role("us", &table(7, "eu")), PrimaryRole::Other);
}

#[test]
fn calls_have_the_published_role() {
    let regions = regions("eu", &["eu", "us"], OwnShares::default());
    assert_eq!(regions.calls.role(), PrimaryRole::Other);
}
