//! The metrics page of running instances.

use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn promtool_accepts_the_page_except_for_the_references_names() {
    let instances = Instances::start();
    instances.send_requests().await;
    for tollgate in instances.all() {
        let (_, said) = promtool(&["check", "metrics"], &page(tollgate));
        let ours: Vec<&str> = said.lines().filter(|line| !line.starts_with("ratelimit_service_")).collect();
        assert_eq!(ours, Vec::<&str>::new());
    }
    let page = page(&instances.redis);
    let (_, said) = promtool(&["check", "metrics"], &page);
    assert!(said.contains("ratelimit_service_total_requests"), "it says nothing at all: {said}");
    let documented = ["docs/guides/monitoring.md", "docs/guides/metrics.md"].map(read).concat();
    for name in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        let last = name.rsplit("rate_limit_").next().unwrap_or(name);
        let is_short = name.starts_with("ratelimit_service_") && documented.contains(&format!("…_{last}`"));
        let is_error = name == "ratelimit_service_config_load_error";
        assert!(
            is_short || is_error || documented.contains(&format!("`{name}`")),
            "{name} is not documented"
        );
    }
}

#[tokio::test]
async fn the_reference_counts_the_same_under_its_names() {
    let instances = Instances::start();
    instances.send_requests().await;
    let redis = samples(&page(&instances.redis));
    for (ours, of_reference) in [
        ("hits_total", "total_hits"),
        ("within_limit_total", "within_limit"),
        ("near_limit_total", "near_limit"),
        ("over_limit_total", "over_limit"),
        ("shadow_mode_total", "shadow_mode"),
    ] {
        for (rule, keys) in [
            ("user", "key1=\"user\""),
            ("watched", "key1=\"watched\""),
            ("tenant.path.method", "key1=\"tenant\",key2=\"path\""),
        ] {
            let own = redis[&format!("tollgate_rule_{ours}{{domain=\"edge\",rule=\"{rule}\"}}")];
            let name = format!("ratelimit_service_rate_limit_{of_reference}{{domain=\"edge\",{keys}}}");
            assert_eq!(redis[&name], own, "{name}");
        }
    }
    assert_eq!(redis["tollgate_rule_hits_total{domain=\"edge\",rule=\"user\"}"], 5.0);
    assert_eq!(redis["ratelimit_service_rate_limit_over_limit{domain=\"edge\",key1=\"user\"}"], 2.0);
    assert_eq!(redis["ratelimit_service_rate_limit_shadow_mode{domain=\"edge\",key1=\"watched\"}"], 2.0);
    assert_eq!(redis["ratelimit_service_should_rate_limit_error{err_type=\"service_error\"}"], 1.0);
    assert_eq!(redis["ratelimit_service_config_load_success"], 1.0);
    assert_eq!(redis["ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}"], 7.0);
    assert!(!page(&instances.memory).contains("ratelimit_service_"));
}

#[tokio::test]
async fn hits_are_summed_by_the_algorithm_that_decided() {
    let algorithms = ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket"];
    let rule = |name: &&str| {
        format!("- {{key: {name}, rate_limit: {{algorithm: {name}, unit: day, requests_per_unit: 2}}}}\n")
    };
    let text = format!("domain: d\ndescriptors:\n{}", algorithms.iter().map(rule).collect::<String>());
    let (tollgate, mut client) = Tollgate::serving_one(&text, &[]).await;
    for (calls, name) in (1..).zip(algorithms) {
        for _ in 0..calls {
            client.call(request("d", &[&[(name, "v")]])).await.expect("an answer");
        }
    }
    let samples = samples(&page(&tollgate));
    let counted = |metric: &str| {
        algorithms.map(|name| samples[&format!("tollgate_algorithm_{metric}_total{{algorithm=\"{name}\"}}")])
    };
    assert_eq!(counted("hits"), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(counted("over_limit"), [0.0, 0.0, 1.0, 2.0]);
    assert_eq!(counted("degraded"), [0.0; 4]);
    assert_eq!(samples["tollgate_algorithm_hits_total{algorithm=\"concurrency\"}"], 0.0);
}

#[tokio::test]
async fn durations_degraded_hits_and_certificates_are_exported() {
    let instances = Instances::start();
    instances.send_requests().await;
    let server = format!("server=\"127.0.0.1:{}\"", instances.server.port());
    wait_for(&instances.redis, &format!("tollgate_redis_connections{{state=\"down\",{server}}} 0")).await;
    let [redis, degraded, memory, _] = instances.all().map(|tollgate| samples(&page(tollgate)));
    assert_eq!(redis["tollgate_request_duration_seconds_count"], 7.0);
    assert_eq!(redis["tollgate_request_duration_seconds_bucket{le=\"+Inf\"}"], 7.0);
    // Requests of an unknown domain and malformed ones do not reach the store.
    assert!(redis["tollgate_store_duration_seconds_count"] >= 3.0);
    assert!(redis["tollgate_request_duration_seconds_sum"] < 7.0);
    assert!(redis["tollgate_redis_batch_calls_sum"] >= redis["tollgate_redis_batch_calls_count"]);
    assert!(redis[&format!("tollgate_redis_connections{{state=\"up\",{server}}}")] >= 2.0);
    assert_eq!(redis[&format!("tollgate_redis_breakers_open{{{server}}}")], 0.0);
    assert_eq!(redis["tollgate_rule_degraded_total{domain=\"edge\",rule=\"user\"}"], 0.0);
    assert_eq!(degraded["tollgate_rule_degraded_total{domain=\"edge\",rule=\"user\"}"], 5.0);
    assert!(degraded["tollgate_redis_connections{state=\"down\",server=\"127.0.0.1:1\"}"] >= 2.0);
    assert!(degraded["tollgate_redis_breakers_open{server=\"127.0.0.1:1\"}"] >= 1.0);
    assert!(redis["tollgate_worker_busy_seconds_total{worker=\"0\"}"] > 0.0);
    assert!(redis["tollgate_worker_busy_seconds_total{worker=\"main\"}"] > 0.0);
    // As rcgen makes them: valid until the year 4096.
    let expiry = memory["tollgate_tls_certificate_expiry_timestamp_seconds{port=\"grpc\"}"];
    assert!((6.7e10..6.8e10).contains(&expiry), "{expiry}");
}

/// Waits until a page has a line.
async fn wait_for(tollgate: &Tollgate, line: &str) {
    until(&format!("no {line}"), async || page(tollgate).lines().any(|known| known == line)).await;
}

#[tokio::test]
async fn invalid_rules_are_reported_from_the_start_until_they_are_fixed() {
    let config = rules("domain: [");
    let tollgate = Tollgate::spawn(config.path(), &["--start-without-rules"]);
    until("it does not start", async || http::try_get(&tollgate.url("/metrics")).is_some()).await;
    for (rules, value) in [(None, "0"), (Some(RULES), "1"), (Some("domain: ["), "0"), (Some(RULES), "1")] {
        if let Some(rules) = rules {
            fs::write(config.path().join("rules.yaml"), rules).expect("written");
        }
        wait_for(&tollgate, &format!("tollgate_config_last_load_successful {value}")).await;
    }
}

#[tokio::test]
async fn instance_local_versions_do_not_count_as_lag_of_others() {
    let tollgate = Tollgate::serving(RULES, &["--rules", "memory"]);
    wait_for(&tollgate, "tollgate_rules_version 1").await;
    assert!(!page(&tollgate).contains("tollgate_rules_latest_version"));
}

#[tokio::test]
async fn reset_and_malformed_calls_are_counted_too() {
    let (config, server) = (rules(RULES), Redis::start());
    let tollgate = Tollgate::start(config.path(), &["--store", &server.url(), "--store-timeout", "20s"]);
    let mut client = tollgate.client().await;
    server.signal("STOP");
    let call = client.call(request("edge", &[&[("user", "me")]]));
    assert!(timeout(Duration::from_millis(300), call).await.is_err(), "it waits for Redis");
    wait_for(&tollgate, "tollgate_requests_total{result=\"cancelled\"} 1").await;
    server.signal("CONT");
    // Longer than a message may be.
    assert!(client.call(request(&"d".repeat(5 << 20), &[])).await.is_err());
    wait_for(&tollgate, "tollgate_requests_total{result=\"invalid\"} 1").await;
    let samples = samples(&page(&tollgate));
    assert_eq!(samples["tollgate_request_duration_seconds_count"], 2.0);
    assert_eq!(samples["tollgate_request_duration_seconds_bucket{le=\"0.1\"}"], 1.0);
}
