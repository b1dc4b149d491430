//! Overrides of rules and of keys on several instances.

use tollgate::control::OverrideEntry;

use super::*;

/// The maximum time until an override or its end takes effect.
const MAX_PROPAGATION: Duration = Duration::from_secs(1);

const RULES: &str = "\
# Limits of the shop.
domain: web
descriptors:
- key: k    # one counter a value
  rate_limit:
    unit: year
    requests_per_unit: 1000   # agreed in May
";

/// Instances on one Redis, each with a client and a directory for its state.
struct OverrideFleet {
    redis: Redis,
    config: TempDir,
    files: TempDir,
    source: &'static str,
    instances: Vec<Tollgate>,
    clients: Vec<Client>,
}

impl OverrideFleet {
    async fn start(source: &'static str) -> Self {
        let redis = Redis::start();
        let files = tempfile::tempdir().expect("a directory");
        let (instances, clients) = (Vec::new(), Vec::new());
        let mut fleet = Self { redis, config: rules(RULES), files, source, instances, clients };
        fleet.start_instances().await;
        fleet
    }

    fn state(&self, at: usize) -> PathBuf {
        self.files.path().join(format!("instance-{at}"))
    }

    async fn start_instances(&mut self) {
        let url = self.redis.url();
        for at in 0..3 {
            let state = self.state(at).display().to_string();
            let arguments =
                ["--store", &url, "--rules", self.source, "--state-directory", &state, "--log-level", "warn"];
            self.instances.push(Tollgate::spawn(self.config.path(), &arguments));
        }
        for instance in &self.instances {
            instance.wait_until_ready();
            self.clients.push(instance.client().await);
        }
    }

    /// Ends all instances at once.
    fn kill(&mut self) {
        self.instances.iter().for_each(|instance| instance.signal("KILL"));
        for instance in &mut self.instances {
            instance.wait();
        }
        self.instances.clear();
        self.clients.clear();
    }

    /// Sends a request to the API of one instance.
    fn request(&self, at: usize, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        api(&self.instances[at], method, path, body)
    }

    fn set(&self, at: usize, key: Option<&str>, limit: u32, expires_in_s: Option<u64>) -> Value {
        let key: Vec<Value> = key.iter().map(|value| json!({"key": "k", "value": value})).collect();
        let rate_limit = json!({"requests_per_unit": limit});
        let stated = json!({"kind": "override", "domain": "web", "rule": "k", "descriptor": key,
            "rate_limit": rate_limit, "expires_in_s": expires_in_s});
        put_by_api(&self.instances[at], &stated, "sale")
    }
}

#[tokio::test]
async fn overrides_of_a_rule_and_of_a_key_are_enforced_by_all_instances_until_their_end() {
    let mut fleet = OverrideFleet::start("directory").await;
    let mut times = Vec::new();
    for round in 1..=3_u32 {
        fleet.set(0, None, 2_000 + round, None);
        times.push(all_enforced(&mut fleet.clients, 2_000 + round, Instant::now()).await);
    }
    mostly_keep_to(MAX_PROPAGATION, "an override", &times);
    let entry = fleet.set(1, Some("v"), 77, Some(3_600));
    all_enforced(&mut fleet.clients, 77, Instant::now()).await;
    let listed = fleet.request(2, "GET", "/records", None).1;
    assert_eq!(listed["records"].as_array().map(Vec::len), Some(2), "{listed}");
    let rlconfig = http::get(&fleet.instances[0].admin_url("/rlconfig")).body;
    assert!(
        rlconfig.contains("requests_per_unit=2003") && rlconfig.contains("key_overrides: 1"),
        "{rlconfig}"
    );
    let tried = json!({"domain": "web", "descriptors": [[{"key": "k", "value": "v"}]]});
    let tried = fleet.request(0, "POST", "/try", Some(&tried)).1;
    assert_eq!(tried["descriptors"][0]["rule"]["override"]["id"], entry["key"], "{tried}");
    // The end comes by itself, to each instance by its own clock.
    let entry = fleet.set(1, Some("v"), 77, Some(1));
    let ends_at_ms = entry["expires_at_ms"].as_u64().expect("an end");
    all_enforced(&mut fleet.clients, 2_003, Instant::now()).await;
    assert!(now_ms() >= ends_at_ms, "it ended too early");
    until("the metric", async || {
        let page = fleet.instances[1].metrics();
        page.contains("tollgate_rule_overrides{kind=\"key\"} 0\n")
            && page.contains("tollgate_rule_overrides{kind=\"rule\"} 1\n")
    })
    .await;
    let of_rule = fleet.request(0, "GET", "/records", None).1["records"][0]["key"].clone();
    let path = format!("/records/{}", of_rule.as_str().expect("a key"));
    assert_eq!(fleet.request(2, "DELETE", &path, None).0, 204);
    all_enforced(&mut fleet.clients, 1_000, Instant::now()).await;
    let audit = fleet.request(1, "GET", "/audit", None).1;
    let actions: Vec<_> =
        audit["entries"].as_array().expect("entries").iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions[0], "remove_override", "{audit}");
    assert_eq!(actions.iter().filter(|action| **action == "set_override").count(), 5, "{audit}");
}

#[tokio::test]
async fn overrides_are_back_after_all_instances_were_killed_and_redis_lost_its_data() {
    let mut fleet = OverrideFleet::start("directory").await;
    fleet.set(0, None, 2_000, None);
    let entry = fleet.set(1, Some("v"), 77, Some(3_600));
    all_enforced(&mut fleet.clients, 77, Instant::now()).await;
    let key = entry["key"].as_str().expect("a key").to_owned();
    for at in 0..3 {
        let file = fleet.state(at).join("records");
        until("the file", async || {
            fs::read_to_string(&file).is_ok_and(|text| text.contains(r#""value":"v""#))
        })
        .await;
    }
    fleet.kill();
    fleet.redis.restart_after(Duration::ZERO);
    let count = |redis: &Redis| -> u64 {
        cmd("HLEN").arg(rules_key("records")).query(&mut redis.connect()).expect("a number")
    };
    assert_eq!(count(&fleet.redis), 0, "the data is lost");
    fleet.start_instances().await;
    all_enforced(&mut fleet.clients, 77, Instant::now()).await;
    until("the store", async || count(&fleet.redis) == 2).await;
    // An instance without a file gets them from there.
    let url = fleet.redis.url();
    let new = Tollgate::start(fleet.config.path(), &["--store", &url, "--log-level", "warn"]);
    enforced(&mut new.client().await, 77, Instant::now()).await;
    // A removal is not undone by those that restore.
    assert_eq!(fleet.request(0, "DELETE", &format!("/records/{key}"), None).0, 204);
    all_enforced(&mut fleet.clients, 2_000, Instant::now()).await;
    cmd("FLUSHALL").exec(&mut fleet.redis.connect()).expect("done");
    until("the store", async || count(&fleet.redis) == 1).await;
    assert_eq!(limit_of(&mut fleet.clients[2]).await, Some(2_000));
}

/// Sets the override of a value of `k`.
fn set_on(instance: &Tollgate, value: &str, limit: u32) {
    let key = json!([{"key": "k", "value": value}]);
    let rate_limit = json!({"requests_per_unit": limit});
    let stated = json!({"kind": "override", "domain": "web", "rule": "k", "descriptor": key, "rate_limit": rate_limit});
    put_by_api(instance, &stated, "sale");
}

/// The overridden limits by value.
fn limits_on(instance: &Tollgate) -> Vec<(String, u64)> {
    let listed = api(instance, "GET", "/records", None).1;
    let overrides = listed["records"].as_array().cloned().unwrap_or_default();
    let limit = |entry: &Value| {
        let value = entry["descriptor"][0]["value"].as_str()?.to_owned();
        Some((value, entry["rate_limit"]["requests_per_unit"].as_u64()?))
    };
    let mut limits: Vec<_> = overrides.iter().filter_map(limit).collect();
    limits.sort();
    limits
}

#[tokio::test]
async fn overrides_of_a_file_are_added_to_a_store_that_has_others() {
    let (config, files) = (rules(RULES), tempfile::tempdir().expect("a directory"));
    let state = files.path().display().to_string();
    for (store, changed) in [("redis", "a"), ("memory", "b")] {
        let redis = Redis::start();
        let url = redis.url();
        let with_file = |store: &str| {
            Tollgate::start(
                config.path(),
                &["--store", store, "--state-directory", &state, "--log-level", "warn"],
            )
        };
        let first = with_file(if store == "redis" { &url } else { store });
        set_on(&first, "a", 10);
        set_on(&first, "b", 20);
        drop(first);
        cmd("FLUSHALL").exec(&mut redis.connect()).expect("done");
        let other = Tollgate::start(config.path(), &["--store", &url, "--log-level", "warn"]);
        set_on(&other, changed, 30);
        set_on(&other, "c", 40);
        let again = with_file(&url);
        let mut expected = vec![("a".to_owned(), 10), ("b".to_owned(), 20), ("c".to_owned(), 40)];
        expected.iter_mut().filter(|(value, _)| value == changed).for_each(|(_, limit)| *limit = 30);
        for instance in [&again, &other] {
            until("the overrides of both", async || limits_on(instance) == expected).await;
        }
        let audit = api(&other, "GET", "/audit", None).1.to_string();
        assert!(audit.contains("changes of records") && audit.contains("restored"), "{audit}");
        let is_kept = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains(".conflict-");
        let kept: Vec<_> = fs::read_dir(files.path()).expect("there").flatten().filter(is_kept).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(fs::read_to_string(kept[0].path()).expect("a text").contains(r#""value":"a""#));
        drop((again, other));
        fs::remove_file(kept[0].path()).expect("removed");
        fs::remove_file(files.path().join("records")).expect("removed");
    }
}

#[tokio::test]
async fn overrides_of_a_file_in_memory_come_to_an_empty_redis() {
    let (redis, config, files) = (Redis::start(), rules(RULES), tempfile::tempdir().expect("a directory"));
    let state = files.path().display().to_string();
    for (store, value) in [("memory", "a"), (&*redis.url(), "b"), ("memory", "c"), (&*redis.url(), "d")] {
        let instance = Tollgate::start(config.path(), &["--store", store, "--state-directory", &state]);
        set_on(&instance, value, 10);
        until("all", async || limits_on(&instance).last().is_some_and(|(last, _)| last == value)).await;
    }
    let other = Tollgate::start(config.path(), &["--store", &redis.url()]);
    until("all four", async || limits_on(&other).len() == 4).await;
}

#[test]
fn a_records_file_without_end_is_refused_at_the_start() {
    let (config, files) = (rules(RULES), tempfile::tempdir().expect("a directory"));
    let file = files.path().join("records");
    std::os::unix::fs::symlink("/dev/zero", &file).expect("linked");
    let mut program = command();
    let program =
        program.arg("serve").arg("--config").arg(config.path()).arg("--state-directory").arg(files.path());
    let Ended { code, stderr: error, .. } = ended(program);
    assert_ne!(code, Some(0));
    assert!(error.contains("is a device; expected a file"), "{error}");
}

#[tokio::test]
async fn an_override_without_effect_is_refused_and_reported_once_its_rule_is_removed() {
    let fleet = OverrideFleet::start("redis").await;
    let body = |rule: &str, key: Value, limit: Value| {
        let stated = json!({"kind": "override", "domain": "web", "rule": rule, "descriptor": key, "rate_limit": limit});
        json!({"records": [stated], "reason": "r"})
    };
    let limit = json!({"requests_per_unit": 5});
    for (rule, key, limit, reason) in [
        ("k", json!([{"key": "other", "value": "v"}]), limit.clone(), "expected k"),
        ("k", json!([]), json!({"requests_per_unit": "many"}), "whole number"),
        ("k", json!([]), json!({}), "empty"),
    ] {
        let (status, error) = fleet.request(0, "PUT", "/records", Some(&body(rule, key, limit)));
        let message = error["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 422 && message.contains(reason), "{error}");
    }
    let (status, error) =
        fleet.request(0, "PUT", "/records", Some(&body("k", json!([]), json!({"requests_per_unit": 0}))));
    assert_eq!((status, &error["error"]["code"]), (422, &json!("needs_force")), "{error}");
    fleet.set(0, None, 5, None);
    let files = json!({"rules.yaml": RULES.replace("key: k ", "key: other ")});
    let version = json!({"based_on": 1, "files": files, "comment": "renamed", "force": true});
    assert_eq!(fleet.request(0, "POST", "/versions", Some(&version)).0, 201);
    until("the report", async || {
        let listed = fleet.request(1, "GET", "/records", None).1;
        let page = fleet.instances[1].metrics();
        listed["records"][0]["problem"].as_str().is_some_and(|problem| problem.contains("no active rule"))
            && page.contains("tollgate_rule_overrides_unmatched 1\n")
    })
    .await;
}

/// Measurement of 100 changes of one limit by three instances:
/// `cargo test --test integration -- --ignored --nocapture hundred_changes`
#[tokio::test]
#[ignore = "a measurement of a minute"]
async fn hundred_changes_of_one_limit_are_enforced_within_a_second() {
    let mut fleet = OverrideFleet::start("redis").await;
    let mut times = Vec::new();
    for round in 1..=100_u32 {
        let begun = Instant::now();
        fleet.set(round as usize % 3, None, 2_000 + round, None);
        times.push(all_enforced(&mut fleet.clients, 2_000 + round, begun).await);
    }
    times.sort_unstable();
    let within = times.iter().filter(|time| **time < MAX_PROPAGATION).count();
    eprintln!("{within} of 100 within {MAX_PROPAGATION:?}; median {:?}, slowest {:?}", times[50], times[99]);
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

/// Measurement of 100,000 overrides of keys with ends:
/// `cargo test --test integration -- --ignored --nocapture hundred_thousand`
#[tokio::test]
#[ignore = "a measurement of a minute"]
async fn hundred_thousand_overrides_of_keys_are_loaded_from_redis_and_from_a_file() {
    const COUNT: usize = 100_000;
    let redis = Redis::start();
    let files = [("rules.yaml".to_owned(), RULES.as_bytes().to_vec())];
    let loaded = || load_files(files.clone(), Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let control = redis_control(&redis.url(), "");
    let ends = now_ms() + 3_600_000;
    let entries = (0..COUNT).map(|at| OverrideEntry {
        domain: "web".into(),
        rule: "k".into(),
        descriptor: vec![Pair { key: "k".into(), value: format!("customer-{at:08}") }],
        rate_limit: [("requests_per_unit".to_owned(), (5_000 + at % 100).into())].into_iter().collect(),
        reason: "sale".into(),
        author: "ada".into(),
        created_at_ms: 0,
        expires_at_ms: Some(ends + at as u64),
    });
    let begun = Instant::now();
    control.put_records(entries.map(|entry| (Record::Override(entry), None)).collect()).await.expect("put");
    eprintln!("put by one client: {:?}", begun.elapsed());
    let used: String = cmd("MEMORY")
        .arg("USAGE")
        .arg(rules_key("records"))
        .arg("SAMPLES")
        .arg(0)
        .query::<u64>(&mut redis.connect())
        .expect("bytes")
        .to_string();
    eprintln!("hash in Redis: {used} bytes");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("overrides");
    for source in ["Redis", "file"] {
        let active = Arc::<ActiveRules>::default();
        active.replace(Arc::new(loaded().rules));
        let fresh = redis_control(&redis.url(), "");
        let (begun, before) = (Instant::now(), resident());
        fresh.open_records(path.clone()).expect("usable");
        let snapshot = Arc::clone(&active);
        let reconciler = Reconciler::start(&fresh, RulesStatus::default(), snapshot, None, Vec::new);
        let keys = || active.load_overridden().map_or(0, |(_, overridden)| overridden.counts.keys);
        until("all are active", async || keys() == COUNT).await;
        let bytes = resident().saturating_sub(before) / COUNT as u64;
        eprintln!("loaded from {source}: {:?}, {bytes} bytes each", begun.elapsed());
        drop((reconciler, fresh));
        sleep(Duration::from_millis(200)).await;
    }
}
