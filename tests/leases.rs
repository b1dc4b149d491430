//! Leases when calls are given up and stores fail, with Redis.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::proto::envoy::service::ratelimit::v3::RateLimitResponse;

use crate::support::{
    http,
    redis::Redis,
    tollgate::{Client, Tollgate, request, rules},
};

const RULES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
- {key: tenant, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
";

const USER: (&str, &str) = ("user", "me");
const TENANT: (&str, &str) = ("tenant", "ours");

struct Subject {
    redis: Redis,
    tollgate: Tollgate,
    client: Client,
    _config: tempfile::TempDir,
}

impl Subject {
    async fn start(store_timeout: &str) -> Self {
        let (config, redis) = (rules(RULES), Redis::start());
        let arguments = ["--store", &redis.url(), "--store-timeout", store_timeout];
        let tollgate = Tollgate::start(config.path(), &arguments);
        let client = tollgate.client().await;
        Self { redis, tollgate, client, _config: config }
    }

    async fn take(&mut self, entries: &[(&str, &str)]) -> Result<RateLimitResponse, tonic::Status> {
        let descriptors: Vec<_> = entries.iter().map(std::slice::from_ref).collect();
        self.client.call(request("d", &descriptors)).await
    }

    async fn held(&mut self, entry: (&str, &str)) -> u32 {
        let mut look = request("d", &[&[entry]]);
        look.descriptors[0].hits_addend = Some(0);
        5 - self.client.call(look).await.expect("an answer").statuses[0].limit_remaining
    }

    /// Waits until the places that tollgate gave back by itself were given back, as far as Redis knows.
    async fn has_given_back(&self, result: &str) {
        let series = format!(r#"tollgate_given_back_total{{result="{result}"}} "#);
        let look = || http::get(&self.tollgate.url("/metrics")).body.contains(&series);
        timeout(Duration::from_secs(10), async {
            while !look() {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap_or_else(|_| {
            panic!("it gives nothing back: {}", http::get(&self.tollgate.url("/metrics")).body)
        });
    }
}

#[tokio::test]
async fn a_call_that_its_caller_cancels_gives_back_what_it_took() {
    let mut subject = Subject::start("5s").await;
    assert_eq!(subject.held(USER).await, 0);
    subject.redis.signal("STOP");
    let cancelled = timeout(Duration::from_millis(100), subject.take(&[USER, TENANT])).await;
    assert!(cancelled.is_err(), "nobody decides while Redis sleeps");
    // The cancellation is on its way.
    sleep(Duration::from_millis(100)).await;
    subject.redis.signal("CONT");
    subject.has_given_back("success").await;
    assert_eq!((subject.held(USER).await, subject.held(TENANT).await), (0, 0));
    // What was taken had been: the keys were there and are gone.
    let info: String =
        redis::cmd("INFO").arg("commandstats").query(&mut subject.redis.connect()).expect("statistics");
    assert!(info.contains("cmdstat_zadd:calls=2"), "{info}");
}

#[tokio::test]
async fn a_call_that_redis_answers_too_late_gives_back_what_it_took() {
    let mut subject = Subject::start("100ms").await;
    assert_eq!(subject.held(USER).await, 0);
    subject.redis.signal("STOP");
    let error = subject.take(&[USER]).await.expect_err("nobody decides in time");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    subject.redis.signal("CONT");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(subject.held(USER).await, 0);
    let info: String =
        redis::cmd("INFO").arg("commandstats").query(&mut subject.redis.connect()).expect("statistics");
    assert!(info.contains("cmdstat_zadd:calls=1"), "{info}");
}

#[tokio::test]
async fn a_failure_of_one_tag_gives_back_what_the_others_took() {
    let mut subject = Subject::start("5s").await;
    subject.take(&[TENANT]).await.expect("a place");
    let mut connection = subject.redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    redis::cmd("SET").arg(&keys[0]).arg("broken").exec(&mut connection).expect("written");
    let error = subject.take(&[USER, TENANT]).await.expect_err("one of them does not decide");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    subject.has_given_back("success").await;
    assert_eq!(subject.held(USER).await, 0);
}

#[tokio::test]
async fn what_gives_back_is_no_hit() {
    let config = rules(RULES);
    let tollgate = Tollgate::start(config.path(), &[]);
    let mut client = tollgate.client().await;
    client.call(request("d", &[&[USER]])).await.expect("a place");
    client.call(request("d", &[&[USER, ("lease", "00000000000000ff")]])).await.expect("an answer");
    let page = http::get(&tollgate.url("/metrics")).body;
    for name in ["total_hits", "within_limit"] {
        let line = format!("tollgate_rule_{name}_total{{domain=\"d\",rule=\"user\"}} 1\n");
        assert!(page.contains(&line), "{page}");
    }
}
