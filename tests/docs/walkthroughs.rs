//! Commands that call a server, and what they print.

use tollgate::clock::Clock;

use super::coverage::{JSON, TWIN};
use super::*;
use crate::support::http::{self, Answer};

/// A copy of the rules that `cargo run` serves, to be edited.
fn copy_of_the_default() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::copy(project("config/default/basic.yaml"), directory.path().join("basic.yaml")).expect("writable");
    directory
}

/// The number of requests of a loop.
fn repetitions(command: &str) -> usize {
    let count = command.trim_start_matches("for i in $(seq ").split(')').next().unwrap_or_default();
    count.parse().expect("a count")
}

/// The status codes of the requests of a loop.
fn statuses(envoy: &Envoy, command: &str) -> String {
    (0..repetitions(command)).map(|_| envoy.get("/login").status.to_string()).collect::<Vec<_>>().join(" ")
}

/// The minute of the clock, by which windows begin.
fn minute() -> u64 {
    u64::from(Clock::System.now().seconds() / 60)
}

#[test]
fn the_quick_start_runs_as_shown() {
    let commands = commands_of(&page("docs/quickstart.md"));
    let find = |begin: &str| -> Vec<(String, String)> {
        let found = commands.iter().filter(|(command, _)| command.starts_with(begin));
        found.map(|(command, output)| (command.clone(), output.clone().unwrap_or_default())).collect()
    };
    let (loops, headers, edit) = (find("for i in"), find("curl -i"), find("sed -i"));
    assert_eq!((loops.len(), headers.len(), edit.len()), (2, 1, 1));

    // A window may end on the way; then it is repeated.
    for _ in 0..3 {
        let config = copy_of_the_default();
        let tollgate = Tollgate::start(config.path(), &[]);
        let envoy = Envoy::edge(tollgate.grpc_port);
        let begun = minute();
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
        if minute() != begun {
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
                assert!((1..=120).contains(&seconds), "{name}: {seconds}");
            }
            _ => assert_eq!(found, value, "{name}"),
        }
    }
}

#[test]
fn a_load_is_reported_as_shown() {
    let program = "target/release/tollgate-load ";
    let loads: Vec<_> = commands().into_iter().filter(|(command, _)| command.starts_with(program)).collect();
    assert_eq!(loads.len(), 2);
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let target = format!("http://127.0.0.1:{}", tollgate.grpc_port);
    for (shown, expected) in loads {
        let words =
            shown.strip_prefix(program).expect("found by it").split(' ').map(|word| word.replace('\'', ""));
        let short = ["--target", &target, "--warmup", "0", "--duration", "700ms"];
        let Ended { code, stdout: found, .. } = ended(tool("tollgate-load").args(words).args(short));
        let expected = expected.expect("shown");
        match expected.starts_with('{') {
            true => assert_eq!(shape(&json(&found)), shape(&json(&expected))),
            false => {
                assert_eq!(words_of_report(&found), words_of_report(&expected), "{found}");
                // A minute may have ended on the way.
                let limit = found.lines().last().unwrap_or_default();
                assert!(limit == expected.lines().last().unwrap_or_default() || code != Some(0));
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
                    "durationUntilReset" | "retry_after" | "reset_at" => Value::Null,
                    "detail" => {
                        let sentence = field.as_str().and_then(|text| text.split_once("; retry in "));
                        sentence.expect("a sentence and a time").0.into()
                    }
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
fn the_start_in_one_minute_runs_as_shown() {
    let commands = commands_of(&page("README.md"));
    let (twin, shown) = commands.into_iter().find(|(command, _)| command.starts_with(TWIN)).expect("one");
    let body = twin.strip_prefix(TWIN).and_then(|body| body.strip_suffix("'; done; echo")).expect("a body");
    for _ in 0..3 {
        let tollgate = Tollgate::start(&project("config/default"), &[]);
        let begun = minute();
        let status = |_| tollgate.post(body).status.to_string();
        let found = (0..repetitions(&twin)).map(status).collect::<Vec<_>>().join(" ");
        if minute() == begun {
            assert_eq!(found, shown.expect("its output").trim());
            return;
        }
    }
    panic!("no minute is long enough");
}

#[test]
fn the_json_twin_answers_as_shown() {
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let (command, shown) =
        commands().into_iter().find(|(command, _)| command.starts_with(JSON)).expect("one");
    let body = command.strip_prefix(JSON).and_then(|body| body.strip_suffix('\'')).expect("a body");
    let answer = tollgate.post(body);
    assert_eq!((answer.status, json(&answer.body)), (200, json(&shown.expect("its answer"))));
}

#[tokio::test]
async fn bodies_and_metadata_look_as_shown() {
    let tollgate = Tollgate::start(&project("config/examples"), &["--problem-body", "--dynamic-metadata"]);
    let mut client = tollgate.client().await;
    let mut over_limit = request("example_windows", &[&[("password_reset", "ann")]]);
    over_limit.hits_addend = 6;
    let denied = client.call(over_limit).await.expect("an answer");
    assert_eq!(denied.overall_code(), Code::OverLimit);
    let body = String::from_utf8(denied.raw_body).expect("a text");
    assert_eq!(json(&body), json(&block("json problem")));

    let answer = json(&tollgate.hit("example_metadata", &[("plan", "gold")]).body);
    assert_eq!(answer["dynamicMetadata"], json(&block("json metadata")));

    let answer = json(&tollgate.hit("example_several_limits", &[("api_key", "abc")]).body);
    assert_eq!(answer["dynamicMetadata"]["descriptors"][0], json(&block("json limits")));
}
