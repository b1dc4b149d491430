//! The dashboard, walked through in Chromium by `tests/dashboard/scenarios.py`.
//!
//! `TOLLGATE_SCREENSHOTS` is the folder for what is to be seen, `target/dashboard` without it.

use std::process::Child;

use tokio_util::task::AbortOnDropHandle;
use tollgate::control::{EventKind, OperatorEvent, Reconciler, RulesSource, RulesStatus, log_events};
use tollgate::limiter::ActiveRules;

use crate::support::{Process, prelude::*};

/// Versions in the process, as an operator's first look at tollgate has them.
const EDITABLE: &[&str] = &["--store", "memory", "--rules", "memory"];

/// The tiers of the examples, and what else is walked through.
fn config() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let files = [
        "config/examples/tiers.yaml",
        "tests/dashboard/rules/plans.yaml",
        "tests/dashboard/rules/small.yaml",
    ];
    for file in files.map(project) {
        fs::copy(&file, folder.path().join(file.file_name().expect("a name"))).expect("can be copied");
    }
    folder
}

/// Folder for screenshots.
fn pictures() -> PathBuf {
    project(&env::var("TOLLGATE_SCREENSHOTS").unwrap_or_else(|_| "target/dashboard".to_owned()))
}

/// Walks through scenarios; what they print is the test's output.
fn walk(tollgate: &Tollgate, arguments: &[&str]) {
    let python = project("target/tools/bin/python3");
    assert!(python.exists(), "tests/run.sh install installs what the dashboard is tested with");
    let mut python = Command::new(python);
    python.arg("-B").arg(project("tests/dashboard/scenarios.py")).arg("--pictures").arg(pictures());
    python.args(["--url", &tollgate.admin_url(""), "--calls", &tollgate.url("")]);
    println!("{}", output_of(python.args(arguments)));
}

/// Sends a request for some hits on one descriptor to the JSON twin.
fn send(tollgate: &Tollgate, domain: &str, entries: &[(&str, &str)], hits: u32) -> http::Answer {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| serde_json::json!({ "key": key, "value": value })).collect();
    let request = serde_json::json!({
        "domain": domain,
        "descriptors": [{ "entries": entries }],
        "hitsAddend": hits,
    });
    tollgate.post(&request.to_string())
}

#[test]
fn a_newcomer_raises_the_limit_of_a_tier_within_a_minute() {
    let config = config();
    let tollgate = Tollgate::start(config.path(), EDITABLE);
    let free = |key, hits| send(&tollgate, "example_tiers", &[("tier", "free"), ("api_key", key)], hits);
    assert_eq!(free("before", 61).status, 429, "the limit is 60 before");
    walk(&tollgate, &["newcomer"]);
    assert_eq!(free("within", 250).status, 200, "the limit is 250 now");
    assert_eq!(free("beyond", 251).status, 429, "and no more than that");
}

#[test]
fn rules_keys_and_lists_are_changed_from_the_dashboard() {
    let config = config();
    for (folder, flags, scenarios) in [
        (config.path(), EDITABLE, "keyboard looks still parts"),
        (config.path(), EDITABLE, "invalid stale conflict unforced late forced rollback"),
        (
            config.path(),
            EDITABLE,
            "talkers hostile broad entry switch changed emergency trial away quiet slow",
        ),
        (config.path(), EDITABLE, "many"),
        (&project("tests/dashboard/rules"), &EDITABLE[..2], "bans abuse"),
        // Rules of a directory are shown with a hint how to change them.
        (config.path(), &EDITABLE[..2], "directory by_name"),
    ] {
        let tollgate = Tollgate::start(folder, flags);
        walk(&tollgate, &scenarios.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn a_token_signs_in_and_a_viewer_changes_nothing() {
    let config = config();
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    let (operator, viewer) = ("an-operator-s-token-4711", "a-viewer-s-token-0815");
    let text = format!("ana operator {operator}\nvera viewer {viewer}\n");
    fs::write(tokens.path(), text).expect("writable");
    let file = tokens.path().to_str().expect("UTF-8");
    let arguments = [EDITABLE, &["--admin-token-file", file]].concat();
    let tollgate = Tollgate::start(config.path(), &arguments);
    assert_eq!(http::get(&tollgate.admin_url("/")).status, 200, "the page itself reveals nothing");
    assert_eq!(http::get(&tollgate.admin_url("/api/v1/status")).status, 401);
    walk(&tollgate, &["--operator", operator, "--viewer", viewer, "sign_in", "viewer"]);
}

#[tokio::test]
async fn the_sums_of_three_instances_are_shown_and_a_fourth_that_is_missing() {
    let (config, redis) = (config(), Redis::start());
    let arguments = ["--store", &redis.url(), "--store-timeout", "5s"];
    let instances = [0; 3].map(|_| Tollgate::spawn(config.path(), &arguments));
    instances.iter().for_each(Tollgate::wait_until_ready);
    for (instance, hits) in instances.iter().zip([3, 5, 7]) {
        send(instance, "api", &[("api_key", "shared")], hits);
    }
    // A heartbeat without a report, as of an older release, and an event.
    let older = Control::redis(RulesSource::Directory, &settings(&redis.url())).expect("valid settings");
    let rules = Arc::<ActiveRules>::default();
    let _reconciler = Reconciler::start(&older, RulesStatus::default(), rules, None, Vec::new);
    let _logging = AbortOnDropHandle::new(tokio::spawn(log_events(older.clone())));
    older.raise_event(OperatorEvent {
        kind: EventKind::RampRolledBack,
        domain: "api".to_owned(),
        rule: None,
        key: Some("api_key=<b>loud</b>".to_owned()),
        message: "A test of events.".to_owned(),
        figures: Vec::new(),
        occasion: None,
    });
    let walked = tokio::task::spawn_blocking(move || walk(&instances[1], &["fleet"])).await;
    walked.expect("the dashboard shows it");
}

/// Pictures in `docs/guides/demo.md`, and their size in bytes at most.
const DEMO_PICTURES: [&str; 3] = ["demo-limit", "demo-hot-key", "demo-outage"];
const MAX_PICTURE_BYTES: usize = 150 * 1024;

#[test]
fn pictures_of_pages_are_small_and_shown() {
    let folder = project("docs/images");
    let mut found: Vec<String> = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .collect();
    found.sort();
    let mut expected = DEMO_PICTURES.map(|name| format!("{name}.png"));
    expected.sort();
    assert_eq!(found, expected);
    let page = fs::read_to_string(project("docs/guides/demo.md")).expect("readable");
    for name in found {
        assert!(page.contains(&format!("](../images/{name})")), "the page of the demo does not show {name}");
        let bytes = fs::read(folder.join(&name)).expect("readable");
        assert!(bytes.starts_with(b"\x89PNG\r\n"), "{name} is no PNG");
        assert!(bytes.len() <= MAX_PICTURE_BYTES, "{name}: {} bytes", bytes.len());
    }
}

/// A load on the rules of the demo, until the test ends.
fn demo_load(tollgate: &Tollgate, descriptor: &str, keys: &str, rate: &str) -> Process {
    let child: Child = tool("tollgate-load")
        .args(["--target", &format!("http://127.0.0.1:{}", tollgate.grpc_port)])
        .args(["--domain", "edge", "--descriptor", descriptor, "--keys", keys, "--rate", rate])
        .args(["--duration", "10m", "--quiet"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    Process::of(child, None)
}

/// Takes the pictures of `docs/guides/demo.md` anew, with the rules of the demo and a Redis that is stopped.
#[test]
#[ignore = "replaces docs/images; a minute"]
fn the_demo_is_pictured() {
    let redis = Redis::start();
    // A host of its own, as the name of an instance begins with that of its host.
    let mut named = Command::new("unshare");
    named.args(["--map-root-user", "--uts", "sh", "-c", "hostname tollgate-1 && exec \"$0\" \"$@\""]);
    named.arg(command().get_program());
    let flags = ["--store", &redis.url(), "--on-store-error", "local"];
    let tollgate = Tollgate::spawn_by(named, &project("deploy/compose/rules"), &flags);
    tollgate.wait_until_ready();
    let _loads = [("client=hot", "1", "400"), ("client={key}", "200", "100")]
        .map(|(descriptor, keys, rate)| demo_load(&tollgate, descriptor, keys, rate));
    walk(&tollgate, &["demo_limit", "demo_hot_key"]);
    redis.signal("STOP");
    walk(&tollgate, &["demo_outage"]);
    fs::create_dir_all(project("docs/images")).expect("writable");
    for name in DEMO_PICTURES.map(|name| format!("{name}.png")) {
        fs::copy(pictures().join(&name), project("docs/images").join(&name)).expect("writable");
    }
}
