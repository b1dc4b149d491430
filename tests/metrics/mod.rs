//! Observability: the metrics page, the Grafana dashboard, the alerts and their runbooks, all checked against running
//! instances.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{
    docs::rows,
    support::{
        certificates::Authority,
        http,
        prometheus::{Prometheus, promtool},
        redis::Redis,
        tollgate::{Tollgate, project, request, rules},
    },
    xds::control_plane::ControlPlane,
};

const DASHBOARD: &str = "deploy/grafana/tollgate.json";
const ALERTS: &str = "deploy/prometheus/alerts.yaml";

const RULES: &str = "
domain: edge
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 3}}
- {key: watched, rate_limit: {unit: year, requests_per_unit: 3}, shadow_mode: true}
- {key: service, value: shop, load_shedding: {target: 80%}}
- key: tenant
  descriptors:
  - key: path
    descriptors:
    - {key: method, rate_limit: {unit: year, requests_per_unit: 3}}
";

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn page(tollgate: &Tollgate) -> String {
    http::get(&tollgate.url("/metrics")).body
}

/// Instances of every kind: with a Redis that has versions of the rules, with one that is not there, and without any but
/// with TLS or a control plane.
struct Instances {
    redis: Tollgate,
    degraded: Tollgate,
    memory: Tollgate,
    with_control_plane: Tollgate,
    server: Redis,
    _plane: ControlPlane,
    _directories: [tempfile::TempDir; 2],
}

impl Instances {
    fn start() -> Self {
        let (config, server) = (rules(RULES), Redis::start());
        let url = server.url();
        let versions = ["--store", &url, "--store-timeout", "5s", "--rules", "redis", "--reference-metrics"];
        let redis = Tollgate::start(config.path(), &versions);
        let nobody = ["--store", "redis://127.0.0.1:1", "--on-store-error", "local", "--ready-without-store"];
        let degraded = Tollgate::start(config.path(), &nobody);
        let files = tempfile::tempdir().expect("a temporary directory");
        Authority::new("ours").sign(&["localhost"]).write(files.path());
        let [certificate, key] =
            ["cert.pem", "key.pem"].map(|name| files.path().join(name).display().to_string());
        let tls = ["--grpc-tls-cert", &certificate, "--grpc-tls-key", &key];
        let memory = Tollgate::start(config.path(), &tls);
        let plane = ControlPlane::start();
        plane.push("1", &[]);
        let with_control_plane =
            Tollgate::start(config.path(), &["--rules", "xds", "--xds-server", &plane.url()]);
        let directories = [config, files];
        Self { redis, degraded, memory, with_control_plane, server, _plane: plane, _directories: directories }
    }

    fn all(&self) -> [&Tollgate; 4] {
        [&self.redis, &self.degraded, &self.memory, &self.with_control_plane]
    }

    /// Requests of every kind: that pass, that are near and over a limit, watched, of unknown domains, and malformed.
    async fn send_requests(&self) {
        for tollgate in [&self.redis, &self.degraded] {
            let mut client = tollgate.client().await;
            for _ in 0..5 {
                let deep = [("tenant", "acme"), ("path", "/"), ("method", "GET")];
                let report = [("service", "shop"), ("utilization", "0.5")];
                let all: [&[(&str, &str)]; 4] = [&[("user", "me")], &[("watched", "me")], &deep, &report];
                let _ = client.call(request("edge", &all)).await.expect("an answer");
            }
            let _ = client.call(request("nobody's", &[&[("user", "me")]])).await.expect("an answer");
            assert!(client.call(request("", &[])).await.is_err());
        }
        let json = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "me"}]}]}"#;
        http::post(&self.memory.url("/json"), json);
    }
}

/// The names of metrics in an expression, which all have one of our prefixes.
fn names(expression: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = expression.split(|character| !is_part(character)).map(str::to_owned);
    words.filter(|word| word.starts_with("tollgate_") || word.starts_with("process_")).collect()
}

/// The samples of a page, by name.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
        })
        .collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).expect("JSON")
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().expect("panels").iter().collect()
}

/// The expressions of a dashboard, each with what it is for.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let of_panel = |panel: &Value| -> Vec<(String, String)> {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let title = panel["title"].as_str().expect("a title");
        let expression = |target: &Value| target["expr"].as_str().expect("an expression").to_owned();
        targets.iter().map(|target| (title.to_owned(), expression(target))).collect()
    };
    panels(dashboard).into_iter().flat_map(of_panel).collect()
}

/// The metrics of a dashboard that no page exports, and that are not declared either: some need bans, anomalies or minutes.
fn unknown(dashboard: &Value, pages: &str) -> Vec<String> {
    let known: BTreeSet<String> = samples(pages)
        .into_keys()
        .map(|series| series.split('{').next().unwrap_or_default().to_owned())
        .collect();
    let declared = read("docs/reference/metrics.md");
    let declared =
        rows(&declared).into_iter().filter_map(|row| row.first().map(|name| name.replace('`', "")));
    let known: BTreeSet<String> = known.into_iter().chain(declared).collect();
    let of_variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    let queries = of_variables.filter_map(|variable| variable["definition"].as_str().map(str::to_owned));
    let used = expressions(dashboard).into_iter().map(|(_, expression)| expression).chain(queries);
    used.flat_map(|expression| names(&expression)).filter(|name| !known.contains(name)).collect()
}

/// The alerts, each a block of lines.
fn alerts() -> BTreeMap<String, String> {
    let text = read(ALERTS);
    let blocks = text.split("\n      - alert: ").skip(1);
    blocks.map(|block| (block.lines().next().expect("a name").to_owned(), block.to_owned())).collect()
}

#[tokio::test]
async fn grafana_and_the_alerts_use_existing_metrics() {
    let instances = Instances::start();
    // Utilization is known after some intervals of reports.
    while !page(&instances.redis).contains("tollgate_rule_utilization_ratio{") {
        instances.send_requests().await;
        sleep(Duration::from_millis(100)).await;
    }
    let pages: String = instances.all().map(page).concat();
    let dashboard = dashboard();
    assert_eq!(unknown(&dashboard, &pages), Vec::<String>::new());
    // An unknown name is detected, wherever it stands.
    for (_, expression) in expressions(&dashboard) {
        let name = names(&expression).into_iter().next().expect("a metric");
        let renamed = read(DASHBOARD).replace(&name, &format!("{name}x"));
        let renamed = serde_json::from_str(&renamed).expect("JSON");
        assert!(unknown(&renamed, &pages).contains(&format!("{name}x")), "{name}");
    }

    let prometheus = Prometheus::start(&instances.all(), &project(ALERTS));
    // A metric that no instance exports yet has no data.
    let exported: BTreeSet<String> = samples(&pages)
        .into_keys()
        .map(|series| series.split('{').next().unwrap_or_default().to_owned())
        .collect();
    let mut empty: Vec<(String, String)> = expressions(&dashboard);
    empty.retain(|(_, expression)| names(expression).iter().all(|name| exported.contains(name)));
    let recorded = read(ALERTS).matches("\n      - record: ").count();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        instances.send_requests().await;
        empty.retain(|(_, expression)| prometheus.series(&filled_in(expression)) == 0);
        let rules = prometheus.rules();
        let are_rules_ok =
            rules.len() == alerts().len() + recorded && rules.iter().all(|(_, health)| health == "ok");
        if empty.is_empty() && are_rules_ok {
            break;
        }
        assert!(Instant::now() < deadline, "no data: {empty:#?}; rules: {rules:#?}");
        sleep(Duration::from_millis(500)).await;
    }
}

/// An expression as Grafana would send it, for all there is within some seconds.
fn filled_in(expression: &str) -> String {
    let times = [("$__rate_interval", "10s"), ("$__interval", "10s"), ("$__range", "60s")];
    let variables = ["$job", "$instance", "$domain"].map(|variable| (variable, ".*"));
    times.into_iter().chain(variables).fold(expression.to_owned(), |text, (from, to)| text.replace(from, to))
}

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
    let config = rules(&text);
    let tollgate = Tollgate::start(config.path(), &[]);
    let mut client = tollgate.client().await;
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
    let deadline = Instant::now() + Duration::from_secs(30);
    while !page(tollgate).lines().any(|known| known == line) {
        assert!(Instant::now() < deadline, "no {line}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn invalid_rules_are_reported_from_the_start_until_they_are_fixed() {
    let config = rules("domain: [");
    let tollgate = Tollgate::spawn(config.path(), &["--start-without-rules"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while http::try_get(&tollgate.url("/metrics")).is_none() {
        assert!(Instant::now() < deadline, "it does not start");
        sleep(Duration::from_millis(5)).await;
    }
    for (rules, value) in [(None, "0"), (Some(RULES), "1"), (Some("domain: ["), "0"), (Some(RULES), "1")] {
        if let Some(rules) = rules {
            fs::write(config.path().join("rules.yaml"), rules).expect("written");
        }
        wait_for(&tollgate, &format!("tollgate_config_last_load_successful {value}")).await;
    }
}

#[tokio::test]
async fn instance_local_versions_do_not_count_as_lag_of_others() {
    let config = rules(RULES);
    let tollgate = Tollgate::start(config.path(), &["--rules", "memory"]);
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

#[test]
fn every_alert_is_tested_and_has_a_runbook() {
    let (is_good, said) = promtool(&["check", "rules", project(ALERTS).to_str().expect("UTF-8")], "");
    assert!(is_good, "{said}");
    let tests = project("deploy/prometheus/alerts_test.yaml");
    let objectives = project("deploy/prometheus/objectives_test.yaml");
    let files = [&tests, &objectives].map(|file| file.to_str().expect("UTF-8"));
    let (is_good, said) = promtool(&["test", "rules", files[0], files[1]], "");
    assert!(is_good, "{said}");
    let tests = files.map(|file| fs::read_to_string(file).expect("readable")).concat();
    let alerts = alerts();
    assert!(alerts.len() >= 12, "{alerts:?}");
    for (name, block) in &alerts {
        let severities = ["critical", "warning", "info"];
        assert!(
            severities.iter().any(|severity| block.contains(&format!("{{severity: {severity}}}"))),
            "{name}"
        );
        for annotation in ["summary: ", "description: "] {
            assert!(block.contains(annotation), "{name} has no {annotation}");
        }
        let page = format!("docs/runbooks/{}.md", kebab_case(name));
        let url = format!("runbook_url: {}/blob/main/{page}", env!("CARGO_PKG_REPOSITORY"));
        assert!(block.trim_end().ends_with(&url), "{name} has no {url}");
        assert_runbook(name, &read(&page));
        // One that fires; next to it in the series is what does not.
        let of_alert = tests.split("alertname: ").filter(|test| test.starts_with(&format!("{name}\n")));
        assert!(of_alert.into_iter().any(|test| test.contains("exp_labels")), "{name} is never seen to fire");
    }
    let pages: BTreeSet<String> = fs::read_dir(project("docs/runbooks"))
        .expect("a directory")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .filter(|page| page != "README.md")
        .collect();
    let expected: BTreeSet<String> = alerts.keys().map(|name| format!("{}.md", kebab_case(name))).collect();
    assert_eq!(pages, expected, "one page for each alert");
}

/// `TollgateTlsReloadFailed` as `tollgate-tls-reload-failed`.
fn kebab_case(name: &str) -> String {
    name.split_inclusive(char::is_lowercase).fold(String::new(), |mut kebab, part| {
        if part.starts_with(char::is_uppercase) && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push_str(&part.to_lowercase());
        kebab
    })
}

/// Every runbook has the same four sections, each with a text.
fn assert_runbook(name: &str, page: &str) {
    assert!(page.starts_with(&format!("# {name}\n")), "{name}: its page has another title");
    let mut rest = page;
    for heading in ["Meaning", "Impact", "Diagnosis", "Mitigation"] {
        let (_, below) = rest
            .split_once(&format!("\n## {heading}\n"))
            .unwrap_or_else(|| panic!("{name}: no section {heading} in its place"));
        let text = below.split("\n## ").next().unwrap_or_default();
        assert!(text.split_whitespace().count() > 5, "{name}: {heading} is empty");
        rest = below;
    }
}

#[test]
fn the_dashboard_is_valid_for_grafana() {
    let dashboard = dashboard();
    let panels = panels(&dashboard);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let titles: BTreeSet<&str> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|panel| panel["title"].as_str().expect("a title"))
        .collect();
    for part in ["Traffic and decisions", "Latency", "Rules", "Redis", "Degraded", "Memory", "Process"] {
        assert!(titles.contains(part), "no row {part}");
    }
    let mut taken = BTreeSet::new();
    for panel in &panels {
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().expect("a number"));
        let title = panel["title"].as_str().expect("a title");
        assert!(w > 0 && h > 0 && x + w <= 24, "{title} is too wide");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{title} covers another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(!panel["description"].as_str().expect("a text").is_empty(), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().expect("targets");
        let refs: BTreeSet<&str> =
            targets.iter().map(|target| target["refId"].as_str().expect("a text")).collect();
        assert!(!targets.is_empty() && refs.len() == targets.len(), "{title}");
        assert!(targets.iter().all(|target| target["datasource"]["uid"] == "${datasource}"), "{title}");
    }
    let shown: BTreeSet<String> =
        expressions(&dashboard).iter().flat_map(|(_, expression)| names(expression)).collect();
    for name in read("docs/guides/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `tollgate_")?.split('`').next())
    {
        let name = format!("tollgate_{name}");
        assert!(shown.iter().any(|shown| shown.starts_with(&name)), "{name} is not shown");
    }
    let variables: BTreeSet<&str> = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .map(|variable| variable["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(variables, BTreeSet::from(["datasource", "domain", "instance", "job"]));
    for (title, expression) in expressions(&dashboard) {
        let used = expression.split('$').skip(1).map(|rest| {
            rest.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
                .next()
                .unwrap_or_default()
        });
        for variable in used {
            assert!(variables.contains(variable) || variable.starts_with("__"), "{title}: ${variable}");
        }
        assert!(expression.contains("instance=~\"$instance\""), "{title}: {expression}");
    }
}
