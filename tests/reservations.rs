//! Reservations over the gRPC port, `/json` and the reservation service, with memory and Redis.

use tollgate::proto::envoy::{
    extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride, r#type::v3::RateLimitUnit,
};
use tollgate::proto::tollgate::reservation::v1::{
    CommitRequest, Descriptor, Entry, ReserveRequest, reservation_service_client::ReservationServiceClient,
    reserve_response,
};
use tonic::transport::Channel;

use crate::support::prelude::*;

const RULES: &str = "
domain: llm
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 2000, reserve: {ttl: 1h}}
- key: team
  rate_limit: {unit: year, requests_per_unit: 5000, reserve: {ttl: 1h, add: 100, cap: 20%}}
- key: plain
  rate_limit: {unit: year, requests_per_unit: 10}
- key: model
  weight: {large: 3}
  rate_limit: {unit: year, requests_per_unit: 1000, reserve: {ttl: 1h}}
";

const USER: (&str, &str) = ("user", "me");
const TEAM: (&str, &str) = ("team", "ours");
const PLAIN: (&str, &str) = ("plain", "mine");

pub(crate) struct BudgetStore {
    pub(crate) name: &'static str,
    redis: Option<Redis>,
    pub(crate) tollgate: Tollgate,
    pub(crate) client: Client,
}

impl BudgetStore {
    pub(crate) async fn all() -> [Self; 2] {
        Self::all_with(RULES).await
    }

    pub(crate) async fn all_with(yaml: &str) -> [Self; 2] {
        let redis = Some(Redis::start());
        [Self::start_with("memory", None, yaml).await, Self::start_with("redis", redis, yaml).await]
    }

    async fn start(name: &'static str, redis: Option<Redis>) -> Self {
        Self::start_with(name, redis, RULES).await
    }

    async fn start_with(name: &'static str, redis: Option<Redis>, yaml: &str) -> Self {
        let url = redis.as_ref().map(Redis::url);
        let store = url.as_deref().map_or(vec![], |url| vec!["--store", url, "--store-timeout", "5s"]);
        let tollgate = Tollgate::serving(yaml, &store);
        let client = tollgate.client().await;
        Self { name, redis, tollgate, client }
    }

    async fn call(&mut self, entries: &[(&str, &str)], hits: u64) -> RateLimitResponse {
        let descriptors: Vec<_> = entries.iter().map(std::slice::from_ref).collect();
        self.client.call(with_hits(request("llm", &descriptors), hits)).await.expect("an answer")
    }

    /// The lease of a request that passes.
    pub(crate) async fn reserve(&mut self, entries: &[(&str, &str)], hits: u64) -> String {
        let response = self.call(entries, hits).await;
        assert_eq!(response.overall_code(), Code::Ok, "{}", self.name);
        lease_of(&response).expect("a lease")
    }

    pub(crate) async fn settle(&mut self, entry: (&str, &str), lease: &str, used: u64) {
        let request = with_hits(request("llm", &[&[entry, ("lease", lease)]]), used);
        let response = self.client.call(request).await.expect("an answer");
        assert_eq!((response.overall_code(), lease_of(&response)), (Code::Ok, None), "{}", self.name);
    }

    pub(crate) async fn left(&mut self, entry: (&str, &str)) -> u32 {
        self.call(&[entry], 0).await.statuses[0].limit_remaining
    }

    /// Waits until that many hits are left: what a denied request reserved in other tags returns in the background.
    pub(crate) async fn has_left(&mut self, entry: (&str, &str), hits: u32) {
        read_until(async || self.left(entry).await, |left| *left == hits).await;
    }
}

pub(crate) fn with_hits(mut request: RateLimitRequest, hits: u64) -> RateLimitRequest {
    request.descriptors.iter_mut().for_each(|descriptor| descriptor.hits_addend = Some(hits));
    request
}

#[tokio::test]
async fn a_settlement_counts_once_whatever_is_repeated() {
    for mut subject in BudgetStore::all().await {
        let lease = subject.reserve(&[USER], 480).await;
        assert_eq!(subject.left(USER).await, 1_520, "{}", subject.name);
        for used in [120, 120, 0, 999] {
            subject.settle(USER, &lease, used).await;
            assert_eq!(subject.left(USER).await, 1_880, "{}", subject.name);
        }
        // Without usage, what was reserved.
        let aborted = subject.reserve(&[USER], 300).await;
        subject.settle(USER, &aborted, 0).await;
        assert_eq!(subject.left(USER).await, 1_580, "{}", subject.name);
        // One that the counter does not have.
        for _ in 0..2 {
            subject.settle(USER, "00000000000000ff", 80).await;
            assert_eq!(subject.left(USER).await, 1_500, "{}", subject.name);
        }
        // Beyond the limit too.
        let last = subject.reserve(&[USER], 1_500).await;
        subject.settle(USER, &last, 3_000).await;
        assert_eq!(subject.call(&[USER], 1).await.overall_code(), Code::OverLimit, "{}", subject.name);
        assert!(lease != aborted && aborted != last, "{}", subject.name);
    }
}

#[tokio::test]
async fn the_budgets_of_a_request_are_charged_all_or_none_under_one_lease() {
    for mut subject in BudgetStore::all().await {
        // 480 of the user; of the team 100 more.
        let lease = subject.reserve(&[USER, TEAM, PLAIN], 1).await;
        assert_eq!(subject.left(PLAIN).await, 9, "{}", subject.name);
        for (entry, left) in [(USER, 1_999), (TEAM, 4_899)] {
            assert_eq!(subject.left(entry).await, left, "{}", subject.name);
            subject.settle(entry, &lease, 1).await;
        }
        subject.has_left(TEAM, 4_999).await;
        // At most a fifth of the team's limit.
        let capped = subject.reserve(&[TEAM], 4_000).await;
        assert_eq!(subject.left(TEAM).await, 3_999, "{}", subject.name);
        subject.settle(TEAM, &capped, 1).await;
        // The user's denies.
        let denied = subject.call(&[TEAM, USER, PLAIN], 2_000).await;
        assert_eq!((denied.overall_code(), lease_of(&denied)), (Code::OverLimit, None), "{}", subject.name);
        for (entry, left) in [(TEAM, 4_998), (USER, 1_999), (PLAIN, 9)] {
            subject.has_left(entry, left).await;
        }
    }
}

#[tokio::test]
async fn a_settlement_during_an_outage_of_redis_is_sent_later() {
    let mut subject = BudgetStore::start("redis", Some(Redis::start())).await;
    let lease = subject.reserve(&[USER], 480).await;
    let redis = subject.redis.take().expect("is running");
    let port = redis.port();
    drop(redis);
    // The caller gets an error, or a decision without Redis.
    let settlement = with_hits(request("llm", &[&[USER, ("lease", &lease)]]), 120);
    drop(subject.client.call(settlement).await);
    let redis = Redis::start_on(port, &[]);
    let mut server = redis.connect();
    // It has lost the reservation, so that the usage counts in full.
    let mut used = || {
        let keys: Vec<String> = ::redis::cmd("KEYS").arg("*user*").query(&mut server).expect("keys");
        let header = |key| -> Option<Vec<u8>> {
            ::redis::cmd("HGET").arg(key).arg("h").query(&mut server).expect("a hash")
        };
        let header = keys.first().and_then(header)?;
        Some(f64::from_le_bytes(header[4..12].try_into().expect("8 bytes")))
    };
    read_until(async || used(), |used| *used == Some(120.0)).await;
}

#[tokio::test]
async fn the_descriptors_of_one_budget_reserve_and_settle_their_sum() {
    for mut subject in BudgetStore::all().await {
        // 100 are added once, and a fifth of the limit is the most for both.
        for (team, hits, held) in [("first", 200, 500), ("second", 600, 1_000)] {
            let team = ("team", team);
            let lease = subject.reserve(&[team, team], hits).await;
            assert_eq!(subject.left(team).await, 5_000 - held, "{}", subject.name);
            let entries = [team, ("lease", &*lease)];
            for _ in 0..2 {
                let mut settlement = request("llm", &[&entries, &entries, &entries]);
                for (descriptor, used) in settlement.descriptors.iter_mut().zip([250, 500, 0]) {
                    descriptor.hits_addend = Some(used);
                }
                let response = subject.client.call(settlement).await.expect("an answer");
                assert_eq!(response.overall_code(), Code::Ok, "{}", subject.name);
                assert_eq!(subject.left(team).await, 4_250, "{}", subject.name);
            }
        }
    }
}

#[tokio::test]
async fn usage_is_weighted_as_what_was_reserved() {
    for mut subject in BudgetStore::all().await {
        let model = ("model", "large");
        let lease = subject.reserve(&[model], 200).await;
        assert_eq!(subject.left(model).await, 400, "{}", subject.name);
        subject.settle(model, &lease, 100).await;
        assert_eq!(subject.left(model).await, 700, "{}", subject.name);
    }
}

#[tokio::test]
async fn the_limit_of_a_request_counts_in_the_window_of_the_budget_or_not_at_all() {
    for mut subject in BudgetStore::all().await {
        let lease = subject.reserve(&[USER], 1_000).await;
        subject.settle(USER, &lease, 1_000).await;
        let mut decide = async |unit, number, hits| {
            let mut request = with_hits(request("llm", &[&[USER]]), hits);
            request.descriptors[0].limit =
                Some(RateLimitOverride { requests_per_unit: number, unit, ..Default::default() });
            let response = subject.client.call(request).await.expect("an answer");
            (response.overall_code(), response.statuses[0].limit_remaining)
        };
        assert_eq!(decide(RateLimitUnit::Year.into(), 1_500, 0).await, (Code::Ok, 500));
        // Of another window: the limit of the rule decides.
        for unit in [RateLimitUnit::Second, RateLimitUnit::Month] {
            assert_eq!(decide(unit.into(), 1_500, 0).await, (Code::Ok, 1_000));
            assert_eq!(decide(unit.into(), 1_500, 1_001).await, (Code::OverLimit, 1_000));
        }
        assert_eq!(decide(RateLimitUnit::Year.into(), 1_500, 400).await, (Code::Ok, 100));
        assert_eq!(decide(RateLimitUnit::Second.into(), 5, 100).await, (Code::Ok, 500));
    }
}

pub(crate) async fn reservations(tollgate: &Tollgate) -> ReservationServiceClient<Channel> {
    let address = format!("http://127.0.0.1:{}", tollgate.grpc_port);
    let channel = Channel::from_shared(address).expect("valid").connect().await.expect("listens");
    ReservationServiceClient::new(channel)
}

/// A client of the reservation service.
pub(crate) struct Reserving(pub(crate) ReservationServiceClient<Channel>);

impl Reserving {
    pub(crate) async fn reserve(
        &mut self,
        id: &str,
        entries: &[(&str, &str)],
        amount: u64,
    ) -> (reserve_response::Code, String) {
        let (domain, descriptors) = ("llm".to_owned(), descriptors(entries));
        let request = ReserveRequest { domain, descriptors, amount, id: id.to_owned() };
        let response = self.0.reserve(request).await.expect("an answer").into_inner();
        (response.code(), response.id)
    }

    pub(crate) async fn commit(&mut self, id: &str, entry: (&str, &str), used: u64) {
        let (domain, descriptors) = ("llm".to_owned(), descriptors(&[entry]));
        let request = CommitRequest { domain, descriptors, id: id.to_owned(), used };
        self.0.commit(request).await.expect("an answer");
    }
}

pub(crate) fn descriptors(entries: &[(&str, &str)]) -> Vec<Descriptor> {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    entries.iter().map(|named| Descriptor { entries: vec![entry(named)] }).collect()
}

#[tokio::test]
async fn the_reservation_service_reserves_and_commits_once_by_id() {
    for mut subject in BudgetStore::all().await {
        let mut service = reservations(&subject.tollgate).await;
        let reserve = |id: &str, entries: &[(&str, &str)], amount| ReserveRequest {
            domain: "llm".to_owned(),
            descriptors: descriptors(entries),
            amount,
            id: id.to_owned(),
        };
        let commit = |id: &str, used| CommitRequest {
            domain: "llm".to_owned(),
            descriptors: descriptors(&[USER]),
            id: id.to_owned(),
            used,
        };
        for _ in 0..2 {
            let reserved =
                service.reserve(reserve("order 66", &[USER], 1_200)).await.expect("an answer").into_inner();
            assert_eq!(reserved.code(), reserve_response::Code::Reserved, "{}", subject.name);
            assert_eq!((&*reserved.id, reserved.remaining), ("order 66", 800), "{}", subject.name);
        }
        let denied = service.reserve(reserve("other", &[USER], 900)).await.expect("an answer").into_inner();
        assert_eq!(denied.code(), reserve_response::Code::Denied, "{}", subject.name);
        assert_eq!((&*denied.id, denied.retry_after_seconds), ("", 1), "{}", subject.name);
        for _ in 0..2 {
            service.commit(commit("order 66", 200)).await.expect("an answer");
            assert_eq!(subject.left(USER).await, 1_800, "{}", subject.name);
        }
        // An identifier is for budgets of one hash tag: a repetition would charge others again.
        for entries in [&[USER, PLAIN][..], &[USER, TEAM], &[USER, USER]] {
            let refused = service.reserve(reserve("mixed", entries, 1)).await.expect_err("refused");
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{}: {refused}", subject.name);
        }
        assert_eq!(subject.left(PLAIN).await, 10, "{}", subject.name);
        assert_eq!(subject.left(USER).await, 1_800, "{}", subject.name);
        // Without an identifier, the server chooses it.
        let reserved = service.reserve(reserve("", &[USER], 1_000)).await.expect("an answer").into_inner();
        service.commit(commit(&reserved.id, 300)).await.expect("an answer");
        assert_eq!(subject.left(USER).await, 1_500, "{}", subject.name);
        let free = service.reserve(reserve("", &[("other", "x")], 5)).await.expect("an answer").into_inner();
        assert_eq!(free.code(), reserve_response::Code::NotLimited, "{}", subject.name);
        for refused in
            [service.reserve(reserve("", &[USER], 0)).await.err(), service.commit(commit("", 1)).await.err()]
        {
            assert_eq!(refused.expect("an error").code(), tonic::Code::InvalidArgument, "{}", subject.name);
        }
    }
}

#[tokio::test]
async fn reservations_work_over_json() {
    let mut subject = BudgetStore::start("memory", None).await;
    let post = |entries: &str, hits: u64| {
        let body = format!(
            r#"{{"domain": "llm", "descriptors": [{{"entries": [{entries}], "hitsAddend": {hits}}}]}}"#
        );
        let answer = subject.tollgate.post(&body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let user = r#"{"key": "user", "value": "me"}"#;
    let reserved = post(user, 480);
    let lease = reserved["dynamicMetadata"]["lease"].as_str().expect("a lease").to_owned();
    let settle = format!(r#"{user}, {{"key": "lease", "value": "{lease}"}}"#);
    post(&settle, 120);
    post(&settle, 120);
    assert_eq!(subject.left(USER).await, 1_880);
}
