//! Migration of envoyproxy/ratelimit deployments: the report of `tollgate migrate`, and that it is true.
//!
//! Each deployment is a directory of `tests/migrate`, and its `expected.txt` is the report. `GOLDEN=write` writes
//! these anew, to be read before they are committed.

mod limitador;

use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};
use tollgate::settings;

use crate::{
    docs,
    support::{
        envoy::{Bootstrap, Envoy},
        free_port, http,
        redis::Redis,
        tollgate::{Tollgate, command, project},
    },
};

/// The deployments, the source of their variables, the folder of their rules, and the exit code.
const DEPLOYMENTS: [(&str, &str, Option<&str>, i32); 9] = [
    ("compose", "--manifest=compose/compose.yaml", Some("config"), 0),
    ("istio", "--manifest=istio/deployment.yaml", Some("config"), 0),
    ("envoy_gateway", "--env-file=envoy_gateway/env", None, 0),
    ("memcache", "--env-file=memcache/env", None, 1),
    ("sentinel", "--env-file=sentinel/env", Some("config"), 0),
    ("cluster", "--env-file=cluster/inspect.json", Some("config"), 0),
    ("statsd", "--env-file=statsd/env", Some("config"), 1),
    ("odd_rules", "--env-file=odd_rules/env", Some("config"), 1),
    ("broken_rules", "--env-file=broken_rules/env", Some("config"), 1),
];

fn migrate(arguments: &[String]) -> Output {
    command().arg("migrate").args(arguments).current_dir(project("tests/migrate")).output().expect("it runs")
}

fn arguments(name: &str, source: &str, config: Option<&str>) -> Vec<String> {
    let config = config.map(|config| format!("--config={name}/{config}"));
    std::iter::once(source.to_owned()).chain(config).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("a text")
}

#[test]
fn the_report_of_each_deployment_is_as_expected() {
    for (name, source, config, code) in DEPLOYMENTS {
        let output = migrate(&arguments(name, source, config));
        let output_text = text(&output.stdout);
        assert_eq!(text(&output.stderr), "", "{name}");
        let path = project(&format!("tests/migrate/{name}/expected.txt"));
        if env::var("GOLDEN").is_ok_and(|it| it == "write") {
            fs::write(&path, &output_text).expect("writable");
        }
        let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(output_text, expected, "{name}");
        assert_eq!(output.status.code(), Some(code), "{name}");
        for secret in ["sesame", "open%40"] {
            assert!(!output_text.contains(secret), "{name} reveals a secret");
        }
    }
}

#[test]
fn the_flags_start_the_program_from_a_shell() {
    let mut starts = 0;
    for (name, source, config, _) in DEPLOYMENTS {
        let output_text = text(&migrate(&arguments(name, source, config)).stdout);
        let Some((_, below)) = output_text.split_once("Settings, as flags\n  tollgate") else { continue };
        let flags = below.split("\n\n").next().unwrap_or_default();
        let script = format!("printf '%s\\n' tollgate serve{flags}");
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let words = text(&output.stdout);
        let read = settings::parse(words.lines().map(Into::into), []);
        assert!(matches!(read, Ok(settings::Command::Serve(_))), "{name}: {words}");
        starts += 1;
    }
    assert!(starts >= 6, "{starts}");
}

#[test]
fn the_json_report_matches_the_text() {
    for (name, source, config, code) in DEPLOYMENTS {
        let mut arguments = arguments(name, source, config);
        let output_text = text(&migrate(&arguments).stdout);
        arguments.extend(["--output", "json"].map(str::to_owned));
        let output = migrate(&arguments);
        assert_eq!(output.status.code(), Some(code), "{name}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["verdict"], if code == 0 { "unchanged" } else { "to_be_changed" }, "{name}");
        assert!(!report.to_string().contains("sesame"), "{name}");
        let texts = |field: &str| {
            let items = report[field].as_array().expect("a list").clone();
            items.into_iter().map(|item| item.as_str().expect("a text").to_owned()).collect::<Vec<_>>()
        };
        for line in [texts("plan"), texts("problems"), texts("not_seen")].concat() {
            assert!(output_text.contains(&line), "{name}: {line}");
        }
        for notice in texts("notices") {
            let flag_text = notice.split_once(" has no effect: ").map_or(&*notice, |(_, reason)| reason);
            assert!(output_text.contains(flag_text), "{name}: {notice}");
        }
        for setting in report["settings"].as_array().expect("a list") {
            let variable = setting["variable"].as_str().expect("a text");
            let line = format!("  {variable}={}\n", setting["value"].as_str().expect("a text"));
            assert!(output_text.contains(&line), "{name}: {line}");
        }
    }
}

#[test]
fn migrate_reads_its_own_environment_only_without_a_file() {
    let own = |arguments: &[&str]| {
        let mut command = command();
        command.arg("migrate").args(arguments).current_dir(project("tests/migrate"));
        command.env_clear().env("REDIS_URL", "elsewhere:1").env("TOLLGATE_NONSENSE", "1");
        command.output().expect("it runs")
    };
    let output = own(&["--config=compose/config"]);
    let output_text = text(&output.stdout);
    assert!(output_text.contains("TOLLGATE_NONSENSE: unknown setting"), "{output_text}");
    assert_eq!(output.status.code(), Some(1));
    let output = own(&["--manifest=compose/compose.yaml", "--config=compose/config"]);
    let output_text = text(&output.stdout);
    assert!(!output_text.contains("elsewhere") && !output_text.contains("NONSENSE"), "{output_text}");
    assert_eq!(output.status.code(), Some(0), "{output_text}");
}

#[test]
fn an_input_without_variables_is_not_reported_as_working() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (manifest, reason) in [
        ("services: {a: {image: ratelimit, env_file: x.env}}\n", "all variables of `env_file`"),
        ("services: [\n", "not valid YAML"),
    ] {
        let path = directory.path().join("compose.yaml");
        fs::write(&path, manifest).expect("written");
        let output =
            migrate(&[format!("--manifest={}", path.display()), "--config=compose/config".to_owned()]);
        let output_text = text(&output.stderr);
        assert!(
            output_text.contains("has no variable with a known value") && output_text.contains(reason),
            "{output_text}"
        );
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(1), ""));
    }
}

#[test]
fn an_unreadable_input_is_reported_in_one_line() {
    for (arguments, expected) in [
        (["--env-file", "nowhere"], "cannot read nowhere: "),
        (
            ["--env-file", "compose/config/shop.yaml"],
            "compose/config/shop.yaml has no variables; expected lines KEY=VALUE",
        ),
        (["--manifest", "compose/config/shop.yaml"], "has no variables; expected a container"),
    ] {
        let output = migrate(&arguments.map(str::to_owned));
        let output_text = text(&output.stderr);
        assert!(output_text.contains(expected) && output_text.lines().count() == 1, "{output_text}");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stdout), "");
    }
    let both = ["--env-file", "a", "--manifest", "b"].map(str::to_owned);
    assert_eq!(migrate(&both).status.code(), Some(2));
}

/// On a machine that is busy with tests, Redis may take its time.
const LONG_STORE_TIMEOUT: &str = "--store-timeout=5s";

/// The responses of the compose deployment's rules to a request, and the remaining quota.
fn decide(tollgate: &Tollgate, key: &str, value: &str) -> (u16, Value) {
    let entries = json!([{ "key": key, "value": value }]);
    let body = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
    let answer = http::post(&tollgate.url("/json"), &body.to_string());
    let body: Value = serde_json::from_str(&answer.body).expect("JSON");
    (answer.status, body["statuses"][0]["limitRemaining"].clone())
}

/// The flags that `migrate` prints for an environment, which has to be one that keeps the rules unchanged.
fn printed_flags(environment: &[(&str, String)]) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("env");
    let lines: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    fs::write(&file, lines.concat()).expect("written");
    let output = migrate(&[format!("--env-file={}", file.display()), "--output=json".to_owned()]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &report["verdict"]), (Some(0), &json!("unchanged")), "{report}");
    assert_eq!(report["rules"]["rules"], 2);
    let word = |setting: &Value| {
        let text = |field: &str| setting[field].as_str().expect("a text").to_owned();
        format!("{}={}", text("flag"), text("value"))
    };
    report["settings"].as_array().expect("a list").iter().map(word).collect()
}

#[test]
fn an_instance_with_the_printed_flags_continues_the_counters_of_one_with_the_environment() {
    let redis = Redis::start();
    let rules = project("tests/migrate/compose/config");
    let environment = [
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_URL", format!("127.0.0.1:{}", redis.port())),
        ("USE_STATSD", "false".to_owned()),
        ("CACHE_KEY_PREFIX", "shop:".to_owned()),
        ("RUNTIME_ROOT", rules.parent().expect("a directory").display().to_string()),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true".to_owned()),
        ("LIMIT_RESET_HEADER", "x-reset".to_owned()),
    ];
    let flags = printed_flags(&environment);

    // `spawn` names the directory of the rules, which both have.
    let by_environment = {
        let mut command = command();
        command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
        let tollgate = Tollgate::spawn_by(command, &rules, &[LONG_STORE_TIMEOUT]);
        tollgate.wait_until_ready();
        tollgate
    };
    let by_flags = {
        let mut command = command();
        command.env_clear();
        let flags: Vec<&str> = flags.iter().map(|flag| &**flag).chain([LONG_STORE_TIMEOUT]).collect();
        let tollgate = Tollgate::spawn_at(free_port(), command, Path::new(&rules), &flags);
        tollgate.wait_until_ready();
        tollgate
    };
    let lines = |tollgate: &Tollgate| http::get(&tollgate.admin_url("/rlconfig")).body;
    assert_eq!(lines(&by_environment), lines(&by_flags));
    // The window may end on the way, which would only make more remain.
    let mut last = 31;
    for turn in 0..30 {
        let tollgate = if turn % 2 == 0 { &by_environment } else { &by_flags };
        let (status, remaining) = decide(tollgate, "path", "/checkout");
        let remaining = remaining.as_i64().unwrap_or_default();
        assert_eq!(status, 200, "turn {turn}");
        if remaining >= last {
            assert_eq!(remaining, 29, "the two count apart");
        }
        last = remaining;
    }
}

/// An Envoy that sends requests as documented for a trial, and obeys a share of the responses.
fn on_trial(tollgate: &Tollgate, obeyed: u32) -> Envoy {
    let bootstrap = Bootstrap::read("edge", tollgate.grpc_port, None);
    let (_, rest) =
        bootstrap.yaml.split_once("          - name: envoy.filters.http.ratelimit\n").expect("its filter");
    let (filter, _) = rest.split_once("              # Two descriptors").expect("its actions");
    let filter = format!("          - name: envoy.filters.http.ratelimit\n{filter}");
    let shown = docs::block("yaml envoy beside").replace("0.02s", "5s");
    let shown: String = shown.lines().map(|line| format!("          {line}\n")).collect();
    let stated = "filter_enforced: {default_value: {numerator: 0}";
    assert!(shown.contains(stated));
    let shown = shown.replace(stated, &format!("filter_enforced: {{default_value: {{numerator: {obeyed}}}"));
    bootstrap.with(&filter, &shown).run(&[tollgate.grpc_port])
}

#[test]
fn an_envoy_that_mirrors_to_tollgate_denies_nothing() {
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let over_limit = || {
        let page = http::get(&tollgate.url("/metrics")).body;
        let line =
            page.lines().find(|line| line.starts_with("tollgate_requests_total{result=\"over_limit\"}"));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).expect("a number")
    };
    let envoy = on_trial(&tollgate, 0);
    for _ in 0..30 {
        let answer = envoy.get("/login");
        assert_eq!((answer.status, answer.header("x-envoy-ratelimited")), (200, None));
    }
    assert!(over_limit() >= 10, "{} were to be denied", over_limit());
    let envoy = on_trial(&tollgate, 100);
    let denied = (0..30).filter(|_| envoy.get("/login").status == 429).count();
    assert!(denied >= 10, "{denied}");
}
