//! Settlements that are malformed or late, reservations that are repeated or cancelled, and limits of 0.

use tollgate::proto::envoy::{
    extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride, r#type::v3::RateLimitUnit,
};
use tollgate::proto::tollgate::reservation::v1::{ReserveRequest, reserve_response::Code as Reserved};

use crate::budget_sum::RESERVE;
use crate::reservations::{BudgetStore, Reserving, descriptors, reservations, with_hits};
use crate::support::{http2::Leaver, prelude::*};

const USER: (&str, &str) = ("user", "me");

#[tokio::test]
async fn what_was_used_counts_whatever_names_the_lease_of_its_settlement() {
    for mut subject in BudgetStore::all().await {
        let malformed = [
            "",
            "-",
            "none",
            "order 66",
            "0000000000000000",
            " 00000000000000ff",
            "00000000000000ff ",
            "0x000000000000ff",
            "00000000000000ff00000000000000ff",
            "é",
        ];
        let mut left = 2_000;
        // Without a name to remember, each counts.
        for lease in malformed.iter().chain(&malformed) {
            subject.settle(USER, lease, 7).await;
            left -= 7;
            assert_eq!(subject.left(USER).await, left, "{}: {lease:?}", subject.name);
        }
        subject.settle(USER, "none", 0).await;
        assert_eq!(subject.left(USER).await, left, "{}: nothing was used", subject.name);
        // In upper case it is the same name.
        for lease in ["00000000000000ff", "00000000000000FF"] {
            subject.settle(USER, lease, 7).await;
            assert_eq!(subject.left(USER).await, left - 7, "{}: {lease}", subject.name);
        }
        let page = subject.tollgate.metrics();
        let counted = format!("tollgate_malformed_leases_total {}\n", 2 * malformed.len() + 1);
        assert!(page.contains(&counted), "{}: {page}", subject.name);
    }
}

#[tokio::test]
async fn a_stream_longer_than_its_time_to_live_is_charged_what_it_used() {
    const TTL: Duration = Duration::from_secs(5);
    let stores = BudgetStore::all_with(
        "domain: llm\ndescriptors:\n- key: user\n  rate_limit: {unit: year, requests_per_unit: 2000, reserve: {ttl: 5s}}\n",
    );
    let mut reserved = Vec::new();
    for mut subject in stores.await {
        let mut leases = Vec::new();
        for amount in [300, 300, 1] {
            leases.push(subject.reserve(&[USER], amount).await);
        }
        reserved.push((subject, leases));
    }
    sleep(TTL).await;
    for (mut subject, leases) in reserved {
        assert_eq!(subject.left(USER).await, 1_399, "{}", subject.name);
        for (lease, used, left) in [(0, 120, 1_579), (1, 400, 1_479), (2, 0, 1_479), (0, 9, 1_479)] {
            subject.settle(USER, &leases[lease], used).await;
            assert_eq!(subject.left(USER).await, left, "{}: {used}", subject.name);
        }
    }
}

#[tokio::test]
async fn an_id_that_holds_less_than_is_wanted_reserves_nothing() {
    for mut subject in BudgetStore::all().await {
        let mut service = Reserving(reservations(&subject.tollgate).await);
        let name = subject.name;
        assert_eq!(service.reserve("a", &[USER], 100).await, (Reserved::Reserved, "a".to_owned()), "{name}");
        // A retry, or a part of what is held.
        for amount in [100, 40] {
            assert_eq!(service.reserve("a", &[USER], amount).await.0, Reserved::Reserved, "{name}");
        }
        assert_eq!(service.reserve("a", &[USER], 101).await, (Reserved::IdConflict, String::new()), "{name}");
        assert_eq!(subject.left(USER).await, 1_900, "{name}");
        service.commit("a", USER, 100).await;
        for _ in 0..50 {
            assert_eq!(service.reserve("a", &[USER], 100).await.0, Reserved::IdConflict, "{name}");
        }
        assert_eq!(subject.left(USER).await, 1_900, "{name}");
        // Whatever is left.
        subject.settle(USER, "none", 1_900).await;
        assert_eq!(service.reserve("a", &[USER], 100).await.0, Reserved::IdConflict, "{name}");
        assert_eq!(service.reserve("b", &[USER], 100).await.0, Reserved::Denied, "{name}");
        // Another counter has its own reservations.
        let other = ("user", "other");
        assert_eq!(service.reserve("a", &[other], 100).await.0, Reserved::Reserved, "{name}");
        assert_eq!(subject.left(other).await, 1_900, "{name}");
    }
}

#[tokio::test]
async fn a_reservation_without_an_id_is_released_when_its_caller_leaves() {
    for mut subject in BudgetStore::all().await {
        let mut leaver = Leaver::new(subject.tollgate.grpc_port);
        let mut leave = async |amount, patience| {
            let request = ReserveRequest {
                domain: "llm".to_owned(),
                descriptors: descriptors(&[USER]),
                amount,
                id: String::new(),
            };
            leaver.call(RESERVE, &request, patience).await;
        };
        for micros in 0..300 {
            leave(5, Duration::from_micros(10 * micros)).await;
        }
        // One whose response has arrived.
        leave(300, Duration::from_millis(300)).await;
        leaver.close().await;
        subject.has_left(USER, 2_000).await;
    }
}

/// Limits of 0 by every algorithm, beside one that is not 0.
const ZERO: &str = "
domain: llm
descriptors:
- {key: fixed, rate_limit: {unit: hour, requests_per_unit: 0}}
- {key: sliding, rate_limit: {algorithm: sliding_window, unit: hour, requests_per_unit: 0}}
- {key: log, rate_limit: {algorithm: sliding_window_log, unit: hour, requests_per_unit: 0}}
- {key: bucket, rate_limit: {algorithm: token_bucket, unit: hour, requests_per_unit: 0}}
- {key: permits, rate_limit: {algorithm: concurrency, requests_per_unit: 0}}
- {key: overdraft, rate_limit: {unit: hour, requests_per_unit: 0, overdraft: true}}
- {key: owing, rate_limit: {algorithm: token_bucket, unit: hour, requests_per_unit: 0, overdraft: true}}
- {key: budget, rate_limit: {unit: hour, requests_per_unit: 0, reserve: {ttl: 1h}}}
- {key: leased, rate_limit: {unit: hour, requests_per_unit: 0, sync: leased}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
- {key: user, rate_limit: {unit: hour, requests_per_unit: 100}}
- {key: tokens, rate_limit: {unit: hour, requests_per_unit: 100, overdraft: true}}
- {key: refill, rate_limit: {algorithm: token_bucket, unit: hour, requests_per_unit: 100}}
";

async fn peek(client: &mut Client, entries: &[(&str, &str)], limit: Option<u32>) -> RateLimitResponse {
    let entries: Vec<_> = entries.iter().map(std::slice::from_ref).collect();
    let mut request = with_hits(request("llm", &entries), 0);
    let hour = RateLimitUnit::Hour.into();
    let limit =
        limit.map(|number| RateLimitOverride { requests_per_unit: number, unit: hour, ..Default::default() });
    request.descriptors.iter_mut().for_each(|descriptor| descriptor.limit = limit);
    client.call(request).await.expect("an answer")
}

/// A limit of 0 denies peeks and charges, and counts neither.
async fn denies_all(client: &mut Client, name: &str) {
    for key in ["fixed", "sliding", "log", "bucket", "permits", "overdraft", "owing", "budget", "leased"] {
        for entries in [&[(key, "x")][..], &[USER, (key, "x")], &[(key, "x"), (key, "y")]] {
            let peeked = peek(client, entries, None).await;
            assert_eq!(peeked.overall_code(), Code::OverLimit, "{name}: {entries:?}");
        }
        let charged = client.call(request("llm", &[&[(key, "x")]])).await.expect("an answer");
        assert_eq!(charged.overall_code(), Code::OverLimit, "{name}: {key}");
    }
    assert_eq!(peek(client, &[("shadow", "x")], None).await.overall_code(), Code::Ok, "{name}");
    for key in ["user", "tokens", "refill"] {
        for _ in 0..3 {
            assert_eq!(
                peek(client, &[(key, "me")], Some(0)).await.overall_code(),
                Code::OverLimit,
                "{name}: {key}"
            );
        }
        let peeked = peek(client, &[(key, "me")], None).await;
        assert_eq!(
            (peeked.overall_code(), peeked.statuses[0].limit_remaining),
            (Code::Ok, 100),
            "{name}: {key}"
        );
    }
}

#[tokio::test]
async fn a_limit_of_0_denies_peeks_too() {
    for charging in ["", "atomic: true\n"] {
        for mut subject in BudgetStore::all_with(&format!("{ZERO}{charging}")).await {
            denies_all(&mut subject.client, &format!("{} {charging}", subject.name)).await;
        }
    }
}

#[tokio::test]
async fn a_limit_of_0_denies_peeks_without_its_store() {
    let redis = Redis::start();
    let arguments = [
        "--store",
        &redis.url(),
        "--store-timeout",
        "1s",
        "--on-store-error",
        "local",
        "--replicas-hint",
        "1",
    ];
    let (_tollgate, mut client) = Tollgate::serving_one(
        &format!(
            "{ZERO}- {{key: degraded, rate_limit: {{unit: hour, requests_per_unit: 100, degraded_limit: 0}}}}\n"
        ),
        &arguments,
    ).await;
    assert_eq!(peek(&mut client, &[("degraded", "x")], None).await.overall_code(), Code::Ok);
    drop(redis);
    denies_all(&mut client, "degraded").await;
    assert_eq!(peek(&mut client, &[("degraded", "x")], None).await.overall_code(), Code::OverLimit);
}
