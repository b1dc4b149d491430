//! The alerts and their runbooks.

use super::*;

pub(super) const ALERTS: &str = "deploy/prometheus/alerts.yaml";

/// The alerts, each a block of lines.
pub(super) fn alerts() -> BTreeMap<String, String> {
    let text = read(ALERTS);
    let blocks = text.split("\n      - alert: ").skip(1).filter_map(|block| block.split("\n\n").next());
    blocks.map(|block| (block.lines().next().expect("a name").to_owned(), block.to_owned())).collect()
}

#[test]
fn every_alert_is_tested_and_has_a_runbook() {
    let (is_good, said) = promtool(&["check", "rules", project(ALERTS).to_str().expect("UTF-8")], "");
    assert!(is_good, "{said}");
    let files = ["alerts", "objectives", "traffic"].map(|name| format!("deploy/prometheus/{name}_test.yaml"));
    for file in &files {
        let (is_good, said) = promtool(&["test", "rules", project(file).to_str().expect("UTF-8")], "");
        assert!(is_good, "{said}");
    }
    let tests = files.map(|file| read(&file)).concat();
    let alerts = alerts();
    assert!(alerts.len() >= 12, "{alerts:?}");
    for (name, block) in &alerts {
        let severities = ["critical", "warning", "info"];
        assert!(
            severities.iter().any(|severity| block.contains(&format!("{{severity: {severity}}}"))),
            "{name}"
        );
        for annotation in ["summary: ", "description: "] {
            assert!(block.contains(annotation), "{name} has no {annotation}");
        }
        let page = format!("docs/runbooks/{}.md", kebab_case(name));
        let url = format!("runbook_url: {}/blob/main/{page}", env!("CARGO_PKG_REPOSITORY"));
        assert!(block.trim_end().ends_with(&url), "{name} has no {url}");
        assert_runbook(name, &read(&page));
        // One that fires; next to it in the series is what does not.
        let of_alert = tests.split("alertname: ").filter(|test| test.starts_with(&format!("{name}\n")));
        assert!(of_alert.into_iter().any(|test| test.contains("exp_labels")), "{name} is never seen to fire");
    }
    let pages: BTreeSet<String> = fs::read_dir(project("docs/runbooks"))
        .expect("a directory")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .filter(|page| page != "README.md")
        .collect();
    let expected: BTreeSet<String> = alerts.keys().map(|name| format!("{}.md", kebab_case(name))).collect();
    assert_eq!(pages, expected, "one page for each alert");
}

/// `TollgateTlsReloadFailed` as `tollgate-tls-reload-failed`.
fn kebab_case(name: &str) -> String {
    name.split_inclusive(char::is_lowercase).fold(String::new(), |mut kebab, part| {
        if part.starts_with(char::is_uppercase) && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push_str(&part.to_lowercase());
        kebab
    })
}

/// Every runbook has the same four sections, each with a text.
fn assert_runbook(name: &str, page: &str) {
    assert!(page.starts_with(&format!("# {name}\n")), "{name}: its page has another title");
    let mut rest = page;
    for heading in ["Meaning", "Impact", "Diagnosis", "Mitigation"] {
        let (_, below) = rest
            .split_once(&format!("\n## {heading}\n"))
            .unwrap_or_else(|| panic!("{name}: no section {heading} in its place"));
        let text = below.split("\n## ").next().unwrap_or_default();
        assert!(text.split_whitespace().count() > 5, "{name}: {heading} is empty");
        rest = below;
    }
}
