//! Names of flags, keys, algorithms, metrics and log messages.

use super::*;
use crate::{architecture::crate_sources, reference_pages};

#[test]
fn flags_and_variables_are_named_as_they_are() {
    let commands: [&[&str]; 12] = [
        &[],
        &["check"],
        &["explain"],
        &["rules", "show"],
        &["rules", "diff"],
        &["rules", "apply"],
        &["counters", "refund"],
        &["counters", "bans"],
        &["counters", "lift"],
        &["record", "switch"],
        &["record", "ramp"],
        &["record", "override"],
    ];
    let help = commands.map(|words| output_of(command().args(words).arg("--help")));
    let of_tool = |name| output_of(tool(name).arg("--help"));
    let help = help.concat() + &["tollgate-load", "tollgate-migrate"].map(of_tool).concat();
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
    let schema: Value = serde_json::from_str(&output_of(command().arg("schema"))).expect("JSON");
    let keys_of = |place: &str| -> BTreeSet<String> {
        let mapping = if place == "file" { &schema } else { &schema["definitions"][place] };
        let keys = mapping["properties"].as_object().expect("keys").iter();
        // Keys that envoyproxy/ratelimit ignores there are permitted, and marked.
        keys.filter(|(_, key)| key.get("deprecated").is_none()).map(|(name, _)| name.clone()).collect()
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
        titles.into_iter().zip(["file", "descriptor", "rate_limit", "replaces", "load_shedding"])
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
    assert_eq!(listed, keys_of("defaults"));
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
    let generated = reference_pages::page("metrics");
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
