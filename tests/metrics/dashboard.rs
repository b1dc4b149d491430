//! The Grafana dashboard: its expressions and its layout.

use super::alerts::{ALERTS, alerts};
use super::*;
use crate::{docs::rows, support::prometheus::Prometheus};

const DASHBOARD: &str = "deploy/grafana/tollgate.json";

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).expect("JSON")
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().expect("panels").iter().collect()
}

/// The expressions of a dashboard, each with what it is for.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let of_panel = |panel: &Value| -> Vec<(String, String)> {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let title = panel["title"].as_str().expect("a title");
        let expression = |target: &Value| target["expr"].as_str().expect("an expression").to_owned();
        targets.iter().map(|target| (title.to_owned(), expression(target))).collect()
    };
    panels(dashboard).into_iter().flat_map(of_panel).collect()
}

/// The metrics of a dashboard that no page exports, and that are not declared either: some need bans or minutes.
fn unknown(dashboard: &Value, pages: &str) -> Vec<String> {
    let known: BTreeSet<String> = samples(pages)
        .into_keys()
        .map(|series| series.split('{').next().unwrap_or_default().to_owned())
        .collect();
    let declared = read("docs/reference/metrics.md");
    let declared =
        rows(&declared).into_iter().filter_map(|row| row.first().map(|name| name.replace('`', "")));
    let known: BTreeSet<String> = known.into_iter().chain(declared).collect();
    let of_variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    let queries = of_variables.filter_map(|variable| variable["definition"].as_str().map(str::to_owned));
    let used = expressions(dashboard).into_iter().map(|(_, expression)| expression).chain(queries);
    used.flat_map(|expression| names(&expression)).filter(|name| !known.contains(name)).collect()
}

/// An expression as Grafana would send it, for all there is within some seconds.
fn filled_in(expression: &str) -> String {
    let times = [("$__rate_interval", "10s"), ("$__interval", "10s"), ("$__range", "60s")];
    let variables = ["$job", "$instance", "$domain"].map(|variable| (variable, ".*"));
    times.into_iter().chain(variables).fold(expression.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[tokio::test]
async fn grafana_and_the_alerts_use_existing_metrics() {
    let instances = Instances::start();
    // Utilization is known after some intervals of reports.
    while !page(&instances.redis).contains("tollgate_rule_utilization_ratio{") {
        instances.send_requests().await;
        sleep(Duration::from_millis(100)).await;
    }
    let pages: String = instances.all().map(page).concat();
    let dashboard = dashboard();
    assert_eq!(unknown(&dashboard, &pages), Vec::<String>::new());
    // An unknown name is detected, wherever it stands.
    for (_, expression) in expressions(&dashboard) {
        let name = names(&expression).into_iter().next().expect("a metric");
        let renamed = read(DASHBOARD).replace(&name, &format!("{name}x"));
        let renamed = serde_json::from_str(&renamed).expect("JSON");
        assert!(unknown(&renamed, &pages).contains(&format!("{name}x")), "{name}");
    }

    // Groups with an interval are evaluated at once, too.
    let rules = tempfile::NamedTempFile::new().expect("a file");
    fs::write(rules.path(), read(ALERTS).replace("interval: 5m", "interval: 1s")).expect("writable");
    let prometheus = Prometheus::start(&instances.all(), rules.path());
    // A metric that no instance exports yet has no data.
    let exported: BTreeSet<String> = samples(&pages)
        .into_keys()
        .map(|series| series.split('{').next().unwrap_or_default().to_owned())
        .collect();
    let mut empty: Vec<(String, String)> = expressions(&dashboard);
    empty.retain(|(_, expression)| names(expression).iter().all(|name| exported.contains(name)));
    let recorded = read(ALERTS).matches("\n      - record: ").count();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        instances.send_requests().await;
        empty.retain(|(_, expression)| prometheus.series(&filled_in(expression)) == 0);
        let rules = prometheus.rules();
        let are_rules_ok =
            rules.len() == alerts().len() + recorded && rules.iter().all(|(_, health)| health == "ok");
        if empty.is_empty() && are_rules_ok {
            break;
        }
        assert!(Instant::now() < deadline, "no data: {empty:#?}; rules: {rules:#?}");
        sleep(Duration::from_millis(500)).await;
    }
}

/// Checks that each panel has an id of its own, and that no part of the dashboard lacks a row.
fn assert_ids_and_rows(panels: &[&Value]) {
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let titles: BTreeSet<&str> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|panel| panel["title"].as_str().expect("a title"))
        .collect();
    for part in ["Traffic and decisions", "Latency", "Rules", "Redis", "Degraded", "Memory", "Process"] {
        assert!(titles.contains(part), "no row {part}");
    }
}

/// Checks that the panels are within the grid, apart from each other, and complete.
fn assert_panels_are_complete(panels: &[&Value]) {
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().expect("a number"));
        let title = panel["title"].as_str().expect("a title");
        assert!(w > 0 && h > 0 && x + w <= 24, "{title} is too wide");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{title} covers another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(!panel["description"].as_str().expect("a text").is_empty(), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().expect("targets");
        let refs: BTreeSet<&str> =
            targets.iter().map(|target| target["refId"].as_str().expect("a text")).collect();
        assert!(!targets.is_empty() && refs.len() == targets.len(), "{title}");
        assert!(targets.iter().all(|target| target["datasource"]["uid"] == "${datasource}"), "{title}");
    }
}

fn assert_every_metric_is_shown(dashboard: &Value) {
    let shown: BTreeSet<String> =
        expressions(dashboard).iter().flat_map(|(_, expression)| names(expression)).collect();
    for name in read("docs/guides/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `tollgate_")?.split('`').next())
    {
        let name = format!("tollgate_{name}");
        assert!(shown.iter().any(|shown| shown.starts_with(&name)), "{name} is not shown");
    }
}

/// Checks that expressions use variables that are defined, that of the instance among them.
fn assert_variables_are_known(dashboard: &Value) {
    let variables: BTreeSet<&str> = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .map(|variable| variable["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(variables, BTreeSet::from(["datasource", "domain", "instance", "job"]));
    for (title, expression) in expressions(dashboard) {
        let used = expression.split('$').skip(1).map(|rest| {
            rest.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
                .next()
                .unwrap_or_default()
        });
        for variable in used {
            assert!(variables.contains(variable) || variable.starts_with("__"), "{title}: ${variable}");
        }
        assert!(expression.contains("instance=~\"$instance\""), "{title}: {expression}");
    }
}

#[test]
fn the_dashboard_is_valid_for_grafana() {
    let dashboard = dashboard();
    let panels = panels(&dashboard);
    assert_ids_and_rows(&panels);
    assert_panels_are_complete(&panels);
    assert_every_metric_is_shown(&dashboard);
    assert_variables_are_known(&dashboard);
}
