//! Blocks of YAML and JSON: each is of a known kind, and loads.

use tollgate::config::{self, Options};
use tollgate::control::{EventKind, LoggedEvent};

use super::*;
use crate::support::prometheus::promtool;

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
        "yaml envoy actions",
        "yaml envoy path",
        "yaml envoy path filter",
        "yaml envoy beside",
        "yaml limitador",
        "yaml values",
        "yaml collector",
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

/// The configuration of the collector's receiver of metrics is one of Prometheus, which its own tool checks.
#[test]
fn the_collector_scrapes_by_a_valid_configuration() {
    let collector: Value = serde_yaml::from_str(&block("yaml collector")).expect("YAML");
    let scrape = &collector["receivers"]["prometheus"]["config"];
    assert_eq!(scrape["scrape_configs"][0]["static_configs"][0]["targets"][0], "tollgate:8080");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("prometheus.yaml");
    fs::write(&file, scrape.to_string()).expect("writable");
    let (is_good, output) = promtool(&["check", "config", file.to_str().expect("UTF-8")], "");
    assert!(is_good, "{output}");
    let pipeline = &collector["service"]["pipelines"]["metrics"];
    for part in ["receivers", "exporters"] {
        let name = pipeline[part][0].as_str().expect("a name");
        assert!(collector[part].get(name).is_some(), "no {name} in {part}");
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
        ("edge", "yaml envoy path"),
        ("edge", "yaml envoy path filter"),
    ] {
        let file = read(&format!("deploy/envoy/{file}.yaml"));
        assert!(plain(&file).contains(plain(&block(info)).trim()), "{info}");
    }
}
