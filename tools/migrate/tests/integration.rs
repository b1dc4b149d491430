//! Reports on deployments of envoyproxy/ratelimit. Each deployment is a directory beside this file, and its `expected.txt` is
//! the report; `GOLDEN=write` writes these anew, to be read before they are committed.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::process::{Command, Output};
use std::{env, fs, path::Path};

use serde_json::Value;
use tollgate::settings;

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

/// Directory of the deployments.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

/// The program, in the directory of the deployments.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-migrate"));
    command.current_dir(DIRECTORY);
    command
}

fn migrate(arguments: &[String]) -> Output {
    command().args(arguments).output().expect("it runs")
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
        let path = Path::new(DIRECTORY).join(name).join("expected.txt");
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
        command.args(arguments);
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
