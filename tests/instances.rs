//! Several instances on one Redis.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::support::{
    redis::Redis,
    tollgate::{Tollgate, rules},
};

const LIMIT: usize = 1_000;
const CLIENTS: usize = 64;

/// Two instances, 64 clients, twice as many requests as the limit: how many pass, counted by the clients.
async fn admitted(algorithm: &str, run: usize, redis: &Redis) -> usize {
    let config = rules(&format!(
        "domain: shared\ndescriptors:\n- key: run\n  rate_limit: {{algorithm: {algorithm}, unit: year, requests_per_unit: {LIMIT}}}\n"
    ));
    // A long time-out: a machine that is busy with other tests must not turn an answer into an error.
    let arguments = ["--store", &redis.url(), "--store-timeout", "10s", "--workers", "2"];
    let instances: Arc<[Tollgate; 2]> =
        Arc::new([Tollgate::start(config.path(), &arguments), Tollgate::start(config.path(), &arguments)]);
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let instances = Arc::clone(&instances);
        clients.spawn(async move {
            let mut client = instances[number % 2].client().await;
            let value = format!("{run}");
            let mut admitted = 0;
            for _ in 0..2 * LIMIT / CLIENTS + 1 {
                admitted += usize::from(client.passes("shared", &[("run", &value)]).await);
            }
            admitted
        });
    }
    clients.join_all().await.into_iter().sum()
}

#[tokio::test]
async fn two_instances_admit_exactly_the_limit_whatever_the_algorithm() {
    let redis = Redis::start();
    for run in 0..3 {
        assert_eq!(admitted("fixed_window", run, &redis).await, LIMIT, "fixed_window, run {run}");
        assert_eq!(admitted("token_bucket", run, &redis).await, LIMIT, "token_bucket, run {run}");
    }
}

#[tokio::test]
async fn a_flushed_script_is_loaded_again_and_an_absent_redis_is_an_error_and_no_denial() {
    let config =
        rules("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 5}\n");
    let redis = Redis::start();
    let tollgate = Tollgate::start(config.path(), &["--store", &redis.url(), "--store-timeout", "2s"]);
    let mut client = tollgate.client().await;
    for _ in 0..4 {
        assert!(client.passes("d", &[("k", "v")]).await);
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut redis.connect()).expect("flushed");
    }
    drop(redis);
    let request = crate::support::tollgate::request("d", &[&[("k", "v")]]);
    let error = client.call(request).await.expect_err("no store, no answer");
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    let json = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    assert_eq!(crate::support::http::post(&tollgate.url("/json"), json).status, 503);
}

#[tokio::test]
async fn a_unix_socket_and_a_password_lead_to_redis() {
    let config =
        rules("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 1}\n");
    let redis = Redis::start();
    let tollgate = Tollgate::start(config.path(), &["--store", &redis.unix_url(), "--store-timeout", "2s"]);
    let mut client = tollgate.client().await;
    assert!(client.passes("d", &[("k", "v")]).await);
    assert!(!client.passes("d", &[("k", "v")]).await);
    assert_eq!(
        redis::cmd("KEYS").arg("*").query::<Vec<String>>(&mut redis.connect()).expect("keys"),
        ["{d|k=v}"]
    );

    let guarded =
        Redis::start_with(&["--user", "app", "on", ">pass%word", "~*", "+@all", "--user", "default", "off"]);
    let url = format!("redis://app:pass%25word@127.0.0.1:{}", guarded.port());
    let tollgate =
        Tollgate::start(config.path(), &["--store", &url, "--store-timeout", "2s", "--key-prefix", "p:"]);
    assert!(tollgate.client().await.passes("d", &[("k", "v")]).await);
}
