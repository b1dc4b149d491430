//! The access log of a stock Envoy, which names the rule of every denial.

use super::*;

const RULES: &str = "
domain: edge
descriptors:
- key: remote_address
  shadow_mode: true
  rate_limit: {unit: year, requests_per_unit: 4, name: per-address}
- key: path
  rate_limit: {unit: year, requests_per_unit: 3, name: per-path}
- {key: path, value: /none, rate_limit: {unit: year, requests_per_unit: 0}}
";

/// Waits for this many lines, and returns the decisions that they name, by path.
fn decisions(envoy: &Envoy, lines: usize) -> Vec<(String, Value)> {
    wait("it does not come about", || envoy.access_log().len() >= lines);
    let log = envoy.access_log();
    let lines = log.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| (line["path"].as_str().expect("a path").to_owned(), line["decision"].clone())).collect()
}

/// The access log of an example.
fn log_of(path: &str) -> String {
    let yaml = fs::read_to_string(project(path)).expect("readable");
    let begin = yaml.find("          access_log:\n").expect(path);
    let text = yaml.get(begin..).expect("a text");
    text.get(..text.find("          route_config:").expect(path)).expect("a text").to_owned()
}

#[test]
fn every_denial_is_in_the_access_log_with_the_rule_that_denied_it() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let envoy = Envoy::edge(tollgate.grpc_port);
    let paths = ["/search", "/b", "/none"];
    let mut denied = Vec::new();
    for _ in 0..5 {
        denied.extend(paths.into_iter().filter(|path| envoy.get(path).status == 429));
    }
    assert_eq!(denied.len(), 2 + 2 + 5);
    let named = decisions(&envoy, denied.len());
    assert_eq!(named.iter().map(|(path, _)| &**path).collect::<Vec<_>>(), denied);
    let shown: Value = serde_json::from_str(&docs::block("json decision")).expect("JSON");
    for (path, decision) in named {
        let mut expected = shown.clone();
        match &*path {
            "/none" => {
                expected.as_object_mut().expect("a mapping").remove("key");
                expected["rule"] = "path_/none".into();
            }
            path => expected["key"] = format!("path={path}").into(),
        }
        assert_eq!(decision, expected);
    }
}

#[test]
fn logs_of_all_requests_name_those_in_shadow_mode_and_those_that_pass() {
    let tollgate = Tollgate::serving(RULES, &["--decision-metadata", "all-without-key"]);
    let indented = |text: &str| text.lines().map(|line| format!("          {line}\n")).collect::<String>();
    let filter = "            filter:\n              response_flag_filter: {flags: [RL]}\n";
    let envoy = Bootstrap::read("edge", tollgate.grpc_port, None)
        .with(&log_of("deploy/envoy/edge.yaml"), &indented(&docs::block("yaml envoy log")))
        .with(filter, "")
        .run(&[tollgate.grpc_port]);
    for path in ["/a", "/b", "/c", "/d", "/e"] {
        assert_eq!(envoy.get(path).status, 200);
    }
    let named: Vec<_> = decisions(&envoy, 5).into_iter().map(|(_, decision)| decision).collect();
    let passed = |rule, remaining: u32| json!({"code": "OK", "policy": "enforced", "remaining": remaining, "rule": rule});
    let address = "per-address";
    let shadow = json!({"code": "OK", "policy": "shadow", "remaining": 0, "rule": address});
    // The one with the least remaining: per-path has 2 of 3 on each path.
    let passed = [passed("per-path", 2), passed(address, 2), passed(address, 1), passed(address, 0)];
    assert_eq!(named, [passed.to_vec(), vec![shadow]].concat());
}

#[test]
fn every_example_logs_denials_alike() {
    let edge = log_of("deploy/envoy/edge.yaml");
    assert!(edge.contains("%DYNAMIC_METADATA(envoy.filters.http.ratelimit:decision)%"));
    for name in ["concurrency", "fail_closed", "load_shedding", "response_cost"] {
        assert_eq!(log_of(&format!("deploy/envoy/{name}.yaml")), edge, "{name}");
    }
}
