//! The commands that look at a configuration.

use crate::support::prelude::*;

fn run(arguments: &[&str]) -> Ended {
    ended(command().args(arguments))
}

fn check(directory: &Path) -> Ended {
    run(&["check", &directory.display().to_string()])
}

#[test]
fn check_reports_ten_different_mistakes_at_once_each_with_file_and_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mistakes = "\
domain: shop
descriptors:
- value: no-key
  rate_limit: {unit: minute, requests_per_unit: 1}
- key: a
  rate_limit: {unit: fortnight, requests_per_unit: 1}
- key: b
  rate_limit: {unit: minute, requests_per_unit: -1}
- key: c
  ratelimit: {unit: minute, requests_per_unit: 1}
- key: d
  value: 1.5
- key: e
  share_threshold: true
  rate_limit: {unit: minute, requests_per_unit: 1}
- key: f
  rate_limit: {unit: minute, unlimited: true}
- key: g
  regex: '('
  rate_limit: {unit: minute, requests_per_unit: 1}
- key: h
  rate_limit: {unit: minute, requests_per_unit: 1, name: n, replaces: [{name: n}]}
- key: a
";
    fs::write(directory.path().join("mistakes.yaml"), mistakes).expect("writable");
    fs::write(directory.path().join("more.yaml"), "descriptors: []\n").expect("writable");
    let output = check(directory.path());
    assert_eq!(output.code, Some(1));
    let report = output.stderr;
    for place in [
        "mistakes.yaml:3: descriptors[0]",
        "mistakes.yaml:6: descriptors[1].rate_limit.unit",
        "mistakes.yaml:8: descriptors[2].rate_limit.requests_per_unit",
        "mistakes.yaml:10: descriptors[3].ratelimit",
        "mistakes.yaml:12: descriptors[4].value",
        "mistakes.yaml:14: descriptors[5].share_threshold",
        "mistakes.yaml:17: descriptors[6].rate_limit.unit",
        "mistakes.yaml:19: descriptors[7].regex",
        "mistakes.yaml:22: descriptors[8].rate_limit.replaces[0]",
        "mistakes.yaml:23: descriptors[9]",
        "more.yaml: domain",
    ] {
        assert!(report.contains(place), "no {place} in\n{report}");
    }
}

#[test]
fn check_accepts_the_shipped_rules() {
    for directory in ["config/default", "config/examples"] {
        let output = run(&["check", "--strict", &project(directory).display().to_string()]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stdout.starts_with("all rate limit configs ok"));
    }
}

#[test]
fn explain_shows_the_rule_the_reason_and_the_counter() {
    let config = rules(
        "domain: edge
descriptors:
- key: ip
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: ip
  cidr: 10.0.0.0/8
  rate_limit: {unit: second, requests_per_unit: 5, name: internal}
- key: plan
  value: free
  descriptors:
  - key: path
    rate_limit: {unlimited: true}
",
    );
    let config = config.path().display().to_string();
    let explain = |descriptors: &[&str]| {
        let arguments = [&["explain", "--config", &config, "--domain", "edge"], descriptors].concat();
        let output = run(&arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    let found = explain(&["ip=10.1.2.3", "plan=free,path=/", "plan=paid", "plan=free"]);
    let expected = "\
descriptor ip=10.1.2.3
  ip=10.1.2.3
    taken: the range 10.0.0.0/8
    passed over: the key ip with any value, which comes after
  => rule edge.ip_10.0.0.0/8 (rules.yaml:5)
     limit    5 per second, fixed_window
     counter  56e018caaa00 in {edge|ip=10.1.2.3}
     hash tag {edge|ip=10.1.2.3}, slot 6895
descriptor plan=free,path=/
  plan=free
    taken: the exact value plan_free
  path=/
    taken: the key path with any value
  => rule edge.plan_free.path (rules.yaml:11)
     limit    unlimited
descriptor plan=paid
  plan=paid
    nothing matches; stated here: ip, plan_free, ip in 10.0.0.0/8
  => no limit
descriptor plan=free
  plan=free
    taken: the exact value plan_free
    it states no rate_limit, and no other descriptor is tried in its place
  => no limit
";
    assert_eq!(found, expected);
    let unknown = run(&["explain", "--config", &config, "--domain", "egde", "a=b"]);
    assert!(unknown.stdout.contains("domain egde has no rules"));
    assert_eq!(run(&["explain", "--config", &config, "--domain", "edge", "no-value"]).code, Some(2));
}

#[test]
fn explain_shows_the_cost_per_algorithm_and_the_release_of_a_lease() {
    let config = rules(
        "domain: edge
hash_tag: [user]
atomic: true
descriptors:
- key: user
  rate_limit: {algorithm: concurrency, requests_per_unit: 10}
  descriptors:
  - key: path
    shadow_mode: true
    rate_limit: {algorithm: sliding_window_log, unit: minute, requests_per_unit: 5, min_interval: 1.5s}
",
    );
    let config = config.path().display().to_string();
    let lease = "user=ann,lease=00000000000000aB";
    let output = run(&["explain", "--config", &config, "--domain", "edge", lease, "user=ann,path=/"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let expected = "\
descriptor user=ann,lease=00000000000000aB
  user=ann
    taken: the key user with any value
  lease=00000000000000aB
    releases this lease: its permits are free again, and nothing is charged
  => rule edge.user (rules.yaml:5)
     limit    10 at a time, concurrency, lease_ttl 60s
     counter  d7f72ec92c13 in {edge|user=ann}~d7f72ec92c13
     hash tag {edge|user=ann}, slot 9416
descriptor user=ann,path=/
  user=ann
    taken: the key user with any value
  path=/
    taken: the key path with any value
  => rule edge.user.path (rules.yaml:8)
     limit    5 per minute, sliding_window_log, min_interval 1.5s, shadow mode
     counter  acda35813de2 in {edge|user=ann}+path=/~acda35813de2
     hash tag {edge|user=ann}, slot 9416
a request is charged to all of its limits, or to none if one denies
";
    assert_eq!(output.stdout, expected);
    let unnamed = run(&["explain", "--config", &config, "--domain", "edge", "user=ann,lease=mine"]);
    let says =
        "    would release a lease, but is invalid: expected 16 hexadecimal digits, not all of them 0\n";
    assert!(unnamed.stdout.contains(says), "{}", unnamed.stdout);
}

#[test]
fn explain_shows_which_counters_are_leased() {
    let limits = "descriptors:
- key: user
  shadow_mode: true
  rate_limit: {unit: minute, requests_per_unit: 5, sync: leased}
";
    for (root, says) in [
        ("domain: edge\n", "     limit    5 per minute, fixed_window, sync leased, shadow mode\n"),
        ("domain: edge\natomic: true\n", "     limit    5 per minute, fixed_window, shadow mode\n"),
    ] {
        let config = rules(&format!("{root}{limits}"));
        let config = config.path().display().to_string();
        let found = run(&["explain", "--config", &config, "--domain", "edge", "user=ann"]).stdout;
        assert!(found.contains(says), "{found}");
    }
}

#[test]
fn explain_shows_the_burst_of_a_bucket_where_it_differs_from_the_limit() {
    for (burst, expected) in [("5", "token_bucket"), ("20", "token_bucket, burst 20")] {
        let config = rules(&format!(
            "domain: edge
descriptors:
- key: user
  rate_limit: {{unit: minute, requests_per_unit: 5, algorithm: token_bucket, burst: {burst}}}
"
        ));
        let config = config.path().display().to_string();
        let found = run(&["explain", "--config", &config, "--domain", "edge", "user=ann"]).stdout;
        assert!(found.contains(&format!("     limit    5 per minute, {expected}\n")), "{found}");
    }
}

#[test]
fn help_names_every_setting_with_its_variables() {
    let help = run(&["--help"]).stdout;
    for word in [
        "--store",
        "TOLLGATE_STORE",
        "REDIS_URL",
        "--grpc-address",
        "GRPC_PORT",
        "RUNTIME_ROOT",
        "check",
        "explain",
    ] {
        assert!(help.contains(word), "no {word} in\n{help}");
    }
}

#[test]
fn completions_of_each_shell_name_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = output_of(command().args(["completions", shell]));
        assert!(script.contains("explain") && script.contains("store-timeout"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let pages = directory.path().join("man1");
    output_of(command().arg("man").arg(&pages));
    let page = |name: &str| fs::read_to_string(pages.join(name)).expect(name);
    assert!(
        page("tollgate.1").contains("rate\\-limit service")
            && page("tollgate-rules-rollback.1").contains("rollback")
    );
    assert!(output_of(command().arg("man")).starts_with(".ie"));
    let file = directory.path().join("file");
    fs::write(&file, "").expect("written");
    let refused = ended(command().arg("man").arg(&file));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("cannot write the pages"));
}
