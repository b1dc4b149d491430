//! `deploy/helm`: the chart makes the objects of kustomize, refuses broken values, and agrees with the program. No cluster
//! runs here.

use super::manifests::{OVERLAYS, built, consistency_check, find, settings};
use super::*;
use crate::docs;

const CHART: &str = "deploy/helm/tollgate";

/// The documents of the chart with the values of a file, by the newer version of Helm.
fn rendered(values: &str) -> Vec<Value> {
    let words = ["template", "tollgate", CHART, "--namespace", "tollgate", "--values", values];
    let rendered =
        output_of(Command::new(installed("target/helm/helm")).args(words).current_dir(project(".")));
    let script =
        "import json, sys, yaml; json.dump([it for it in yaml.safe_load_all(sys.stdin) if it], sys.stdout)";
    python(&["-c", script], rendered).as_array().expect("a list").clone()
}

fn texts<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a str)> {
    let mapping = value.pointer(pointer).and_then(Value::as_object).expect("a mapping");
    mapping.iter().map(|(name, text)| (name, text.as_str().expect("a text")))
}

/// The files of a ConfigMap in a directory.
fn written(map: &Value) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (file, text) in texts(map, "/data") {
        fs::write(directory.path().join(file), text).expect("writable");
    }
    directory
}

/// The differences that there may be are functions of `compare.py`.
#[test]
fn the_chart_makes_the_objects_of_kustomize() {
    let overlays: BTreeMap<&str, &[Value]> =
        OVERLAYS.iter().map(|overlay| (*overlay, built(overlay))).collect();
    let input = serde_json::to_vec(&overlays).expect("JSON");
    let differences = python(&["tests/deploy/helm/compare.py"], input);
    assert_eq!(differences, json!([]), "{differences:#}");
}

/// Objects of 30 combinations of values are valid for Kubernetes 1.29 to 1.34, consistent, and accepted by the program.
#[test]
fn thirty_combinations_are_valid_and_accepted_by_the_program() {
    let made = python(&["tests/deploy/helm/matrix.py"], Vec::new());
    let made = made.as_array().expect("a list");
    assert_eq!(made.len(), 30);
    for each in made {
        let (values, documents) = (&each["values"], each["documents"].as_array().expect("a list"));
        // Hooks are checked by their own test; a chart may have no autoscaler, and Secrets and rules of other names.
        let permitted = |problem: &str| {
            problem == "the number of replicas is not the autoscaler's"
                || problem.starts_with("NetworkPolicy/") && problem.contains("-redis selects the pods of ")
                || [
                    "Secret/gate-tls",
                    "ConfigMap/edge-rules",
                    "ServiceAccount/default",
                    "Secret/edge-tollgate-",
                ]
                .iter()
                .any(|external| problem.starts_with(&format!("there is no {external}")))
        };
        let own: Vec<Value> = documents
            .iter()
            .filter(|document| document.pointer("/metadata/annotations/helm.sh~1hook").is_none())
            .filter(|document| document["metadata"]["name"] != "envoy-ratelimit")
            .cloned()
            .collect();
        let problems: Vec<_> =
            consistency_check::problems(&own).into_iter().filter(|problem| !permitted(problem)).collect();
        assert!(problems.is_empty(), "{values}: {problems:#?}");

        let name = if each["name"] == "tollgate" { "tollgate" } else { "edge-tollgate" };
        let map = find(documents, "ConfigMap", &format!("{name}-settings")).expect("settings");
        let mut variables: BTreeMap<String, String> =
            texts(map, "/data").map(|(name, value)| (name.clone(), value.to_owned())).collect();
        let memory = values["store"]["kind"] == "memory";
        if !memory {
            variables.insert("TOLLGATE_STORE".into(), "rediss://localhost:6379".into());
        }
        let settings = settings(&variables);
        let pod = find(documents, "Deployment", name).and_then(|it| it.pointer("/spec/template/spec"));
        let pod = pod.expect("a pod");
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("a list");
        let paths = variables.values().flat_map(|value| value.split(','));
        for path in paths.filter(|path| path.starts_with('/')) {
            let mounted = |mount: &Value| path.starts_with(mount["mountPath"].as_str().expect("a path"));
            assert!(mounts.iter().any(mounted), "{values}: nothing is mounted at {path}");
        }
        assert_eq!(settings.grpc.tls().is_some(), values["tls"]["enabled"] == true, "{values}");
        assert_eq!(find(documents, "HorizontalPodAutoscaler", name).is_some(), {
            !memory && values["autoscaling"]["enabled"] != false
        });
        if let Some(rules) = find(documents, "ConfigMap", &format!("{name}-rules")) {
            config::load(written(rules).path(), &Options::default()).expect("valid rules");
        }
    }
}

#[test]
fn every_broken_value_is_refused_with_its_path() {
    let report = python(&["tests/deploy/helm/broken.py"], Vec::new());
    assert_eq!(report["accepted"], json!([]), "{report:#}");
    assert!(report["broken"].as_u64() >= Some(50));
}

/// The values that the guide shows.
#[test]
fn the_shown_values_make_rules_that_load() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("values.yaml");
    fs::write(&file, docs::block("yaml values")).expect("writable");
    let documents = rendered(file.to_str().expect("a text"));
    let rules = written(find(&documents, "ConfigMap", "tollgate-rules").expect("rules"));
    let loaded = config::load(rules.path(), &Options::default()).expect("valid");
    assert!(loaded.warnings.is_empty() && loaded.rules.rules().count() == 1, "{}", loaded.warnings);
}

#[test]
fn both_versions_of_helm_lint_the_chart_without_a_warning() {
    for program in ["target/helm/helm", "target/helm/helm3"] {
        let mut lint = Command::new(installed(program));
        lint.args(["lint", "--strict", "--quiet", CHART, "--namespace", "tollgate", "--values"]);
        let text = output_of(lint.arg("deploy/helm/values/production.yaml").current_dir(project(".")));
        assert!(!text.contains("[WARNING]"), "{program}: {text}");
    }
}

/// The Job of `helm test`, run as its container, against a tollgate with the rules of the chart.
#[test]
fn the_test_of_the_chart_passes_once_a_limit_denies() {
    for values in ["deploy/helm/values/dev.yaml", "deploy/helm/values/production.yaml"] {
        let documents = rendered(values);
        let rules = written(find(&documents, "ConfigMap", "tollgate-rules").expect("rules"));
        let tollgate = Tollgate::start(rules.path(), &[]);
        let job = find(&documents, "Job", "tollgate-test").expect("a test");
        let container = job.pointer("/spec/template/spec/containers/0").expect("a container");
        let run = |requests: Option<&str>| {
            let mut words = ["/command", "/args"]
                .into_iter()
                .flat_map(|list| container.pointer(list).and_then(Value::as_array).expect("a list").iter());
            let mut command = Command::new(words.next().and_then(Value::as_str).expect("a program"));
            command.args(words.filter_map(Value::as_str));
            for variable in container["env"].as_array().expect("a list") {
                command.env(
                    variable["name"].as_str().expect("a name"),
                    variable["value"].as_str().expect("a text"),
                );
            }
            let url = container["env"][0]["value"].as_str().expect("a URL");
            assert_eq!(url, "http://tollgate-headless.tollgate.svc:8080/json");
            if let Some(requests) = requests {
                command.env("REQUESTS", requests);
            }
            command.env("URL", tollgate.url("/json")).output().expect("a shell")
        };
        // One request alone reaches no limit.
        let single = run(Some("1"));
        assert!(
            !single.status.success() && single.stdout.starts_with(b"1 admitted, 0 denied\n"),
            "{single:?}"
        );
        let passed = run(None);
        assert!(passed.status.success(), "{values}: {passed:?}");
    }
}

/// Chart of a release.
const PUBLISHED: &str = "oci://ghcr.io/tollgate-rs/charts/tollgate";

/// The commands that install a trial, of the chart's README and of the guide, without a cluster.
#[test]
fn the_notes_of_the_chart_name_its_objects() {
    let commands = |page: &str| -> Vec<String> {
        let text = fs::read_to_string(project(page)).expect("readable");
        let lines = text.lines().filter(|line| line.starts_with("helm install "));
        lines.filter(|line| line.contains("store.kind=memory")).map(str::to_owned).collect()
    };
    let of_the_chart = commands("deploy/helm/tollgate/README.md");
    assert!(matches!(&*of_the_chart, [line] if line.contains(PUBLISHED)), "{of_the_chart:?}");
    let of_the_guide = commands("docs/guides/helm.md");
    let [checkout, published] = &*of_the_guide else { panic!("{of_the_guide:?}") };
    assert!(checkout.contains(CHART) && published.contains(PUBLISHED), "{of_the_guide:?}");

    for line in of_the_chart.iter().chain(&of_the_guide) {
        let words = line.split(' ').skip(1).filter(|word| *word != "--wait");
        let words = words.map(|word| if word == PUBLISHED { CHART } else { word });
        let mut install = Command::new(installed("target/helm/helm"));
        let text = output_of(install.args(words).arg("--dry-run=client").current_dir(project(".")));
        let image =
            if line.contains(PUBLISHED) { "ghcr.io/tollgate-rs/tollgate:" } else { "image: tollgate:dev" };
        assert!(text.contains(image), "{line}: another image than {image}");
        let notes = text.split("\nNOTES:\n").nth(1).expect("notes");
        for expected in [
            "rollout status deployment/tollgate",
            "logs job/tollgate-test",
            "tollgate-headless.tollgate.svc.cluster.local:8081",
            "store.kind is memory",
        ] {
            assert!(notes.contains(expected), "{line}: no {expected} in {notes}");
        }
    }
}

/// Versions, the oldest Kubernetes, and the image are those of the rest of the project.
#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = yaml("deploy/helm/tollgate/Chart.yaml");
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
    assert_eq!(chart["kubeVersion"], ">=1.29.0-0");
    let values = yaml("deploy/helm/tollgate/values.yaml");
    let release = fs::read_to_string(project(".github/workflows/release.yaml")).expect("readable");
    let image = values["image"]["repository"].as_str().expect("a name");
    assert!(release.contains(&format!("IMAGE: {image}\n")), "the release publishes no {image}");
    assert_eq!(
        find(built(OVERLAYS[0]), "StatefulSet", "redis-cluster").map(|set| {
            set.pointer("/spec/template/spec/containers/0/image") == Some(&values["redis"]["image"])
        }),
        Some(true)
    );
}
