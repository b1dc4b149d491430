//! Migration: what `tollgate-migrate` reports is true of a running server, and so are the guides.

mod limitador;

use crate::{docs, support::prelude::*};

fn migrate(arguments: &[String]) -> Ended {
    ended(tool("tollgate-migrate").args(arguments))
}

/// On a machine that is busy with tests, Redis may take its time.
const LONG_STORE_TIMEOUT: &str = "--store-timeout=5s";

/// The responses of the compose deployment's rules to a request, and the remaining quota.
fn decide(tollgate: &Tollgate, key: &str, value: &str) -> (u16, Value) {
    let answer = tollgate.hit("shop", &[(key, value)]);
    (answer.status, answer.json()["statuses"][0]["limitRemaining"].clone())
}

/// The flags that `migrate` prints for an environment, which has to be one that keeps the rules unchanged.
fn printed_flags(environment: &[(&str, String)]) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("env");
    let lines: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    fs::write(&file, lines.concat()).expect("written");
    let output = migrate(&[format!("--env-file={}", file.display()), "--output=json".to_owned()]);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!((output.code, &report["verdict"]), (Some(0), &json!("unchanged")), "{report}");
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
    let rules = project("tools/migrate/tests/compose/config");
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
    let over_limit = || tollgate.metric("tollgate_requests_total{result=\"over_limit\"}").expect("exported");
    let envoy = on_trial(&tollgate, 0);
    for _ in 0..30 {
        let answer = envoy.get("/login");
        assert_eq!((answer.status, answer.header("x-envoy-ratelimited")), (200, None));
    }
    assert!(over_limit() >= 10.0, "{} were to be denied", over_limit());
    let envoy = on_trial(&tollgate, 100);
    let denied = (0..30).filter(|_| envoy.get("/login").status == 429).count();
    assert!(denied >= 10, "{denied}");
}
