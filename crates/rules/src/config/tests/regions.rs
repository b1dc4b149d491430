//! The region table, and the scope of limits.

use super::*;
use crate::{OnShareExhausted, RegionTable, Scope, TableSize, config::read_regions};

const TABLE: &str = "
generation: 7
regions:
  us-east: {address: 'https://us.example:8444', weight: 2}
  eu-west: {address: 'https://[2001:db8::1]:8444/', lost: true, certificate_name: eu.mesh}
";

fn table(text: &str) -> Result<RegionTable, String> {
    read_regions("regions.yaml", text.as_bytes()).map_err(|report| report.to_string())
}

#[test]
fn a_region_table_is_read_in_the_order_of_names() {
    let table = table(TABLE).unwrap();
    assert_eq!((table.generation(), table.sharing()), (7, 1));
    let [eu, us] = table.regions() else { panic!("{table:?}") };
    assert_eq!((&*eu.certificate_name, eu.weight, eu.is_lost), ("eu.mesh", 1, true));
    assert_eq!((&*us.certificate_name, us.weight, us.is_lost), ("us.example", 2, false));
    assert_eq!(table.weights("us-east").unwrap().base(100, || 0), 100, "a lost region has no share");
    assert_eq!(table.weights("eu-west").unwrap().base(100, || 0), 0);
    assert!(table.weights("ap").is_none());
    assert_eq!(table.writing(), None);
}

#[test]
fn a_region_that_is_not_lost_may_write_the_rules_of_all_or_be_the_primary_one() {
    for (key, writing, primary) in [("rules", Some("us-east"), None), ("primary", None, Some("us-east"))] {
        let table = table(&format!("{key}: us-east\n{TABLE}")).unwrap();
        assert_eq!((table.writing(), table.primary()), (writing, primary));
    }
}

#[test]
fn a_region_table_with_a_mistake_is_refused_with_its_line_and_key() {
    let region = |entry: &str| format!("generation: 1\nregions:\n  us: {entry}\n");
    let good = "{address: 'https://us:1'}";
    let many: String = (0..17).map(|at| format!("  r{at}: {good}\n")).collect();
    for (text, expected) in [
        ("".to_owned(), "regions.yaml: is empty"),
        ("generation: [".to_owned(), "regions.yaml:2: invalid YAML"),
        (format!("regions: {{us: {good}}}"), "generation: is missing"),
        (region(good).replace('1', "0"), "regions.yaml:1: generation: is 0"),
        ("generation: 1".to_owned(), "regions: is missing"),
        ("generation: 1\nregions: [us]".to_owned(), "regions.yaml:2: regions: expected a mapping"),
        ("generation: 1\nregions: {}".to_owned(), "regions: has no region that is not lost"),
        (region("{address: 'https://us:1', lost: true}"), "regions: has no region that is not lost"),
        (
            region("{address: 'https://us:1', weight: 0}"),
            "regions.yaml:3: regions.us.weight: is 0; expected 1 to 1000",
        ),
        (
            region("{address: 'https://us:1', wieght: 1}"),
            "regions.us.wieght: unknown key; did you mean `weight`?",
        ),
        (region("{weight: 1}"), "regions.yaml:3: regions.us.address: is missing"),
        (region("{address: 'http://us:1'}"), "regions.us.address: is not the address of a region"),
        (region("{address: 'https://us'}"), "regions.us.address: is not the address of a region"),
        (region("{address: 'https://us:0'}"), "regions.us.address: is not the address of a region"),
        (region("{address: 'https://us:1', certificate_name: ''}"), "regions.us.certificate_name: is empty"),
        (region("{address: 'https://us:1', lost: 3}"), "regions.us.lost: "),
        (region("7"), "regions.us: expected a mapping"),
        (
            format!("rules: eu\n{}", region(good)),
            "regions.yaml:1: rules: is `eu`; expected the name of one of",
        ),
        (format!("rules: [us]\n{}", region(good)), "regions.yaml:1: rules: "),
        (
            format!("primary: eu\n{}", region(good)),
            "regions.yaml:1: primary: is `eu`; expected the name of one of",
        ),
        (
            format!("primary: eu-west{TABLE}"),
            "primary: is `eu-west`, which is lost; expected a region that is",
        ),
        (region(good).replace("us:", "US_1:"), "is not a name of a region"),
        (format!("generation: 1\nregions:\n{many}"), "has too many regions"),
        (format!("{}  us: {good}\n", region(good)), "duplicate"),
    ] {
        let error = table(&text).expect_err(&text);
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

/// A table of that number of regions.
const fn of(sharing: u32, has_primary: bool) -> TableSize {
    TableSize::Regions { sharing, has_primary }
}

fn with_table(limit: &str, regions: TableSize) -> Result<Loaded, LoadError> {
    load_all(&[("rules.yaml", &with("unit: minute", limit))], Options { regions, ..Options::default() })
}

#[test]
fn a_limit_is_regional_unless_it_or_the_defaults_state_another_scope() {
    for (defaults, own, scope) in [
        ("", "", Scope::Regional),
        ("", "scope: global", Scope::Global),
        ("scope: global", "", Scope::Global),
        ("scope: global", "scope: regional", Scope::Regional),
        ("", "scope: primary", Scope::Primary),
        ("scope: primary", "", Scope::Primary),
    ] {
        let rule = rule_of(&with(defaults, &format!("unit: day, requests_per_unit: 1, {own}")));
        assert_eq!(rule.scope, scope, "{defaults}; {own}");
    }
}

#[test]
fn a_scope_that_has_no_effect_or_denies_too_early_is_reported() {
    let global = |rest: &str| format!("scope: global, {rest}");
    let warnings = |limit: &str, regions| with_table(limit, regions).unwrap().warnings.to_string();
    let table = of(3, true);
    for (limit, regions, expected) in [
        (global("requests_per_unit: 600"), TableSize::NoTable, "has no effect without a region table"),
        (global("requests_per_unit: 59"), table, "shares of 19 hits, for 3 regions"),
        (global("requests_per_unit: 600, algorithm: token_bucket, burst: 2"), table, "a burst of 2 is less"),
    ] {
        let found = warnings(&limit, regions);
        assert!(found.contains(expected) && found.contains("rate_limit.scope"), "{limit}: {found}");
    }
    for (limit, regions) in [
        (global("requests_per_unit: 60"), table),
        (global("requests_per_unit: 1"), TableSize::Unknown),
        (global("requests_per_unit: 1"), of(1, true)),
        ("requests_per_unit: 1".to_owned(), table),
    ] {
        assert_eq!(warnings(&limit, regions), "", "{limit}");
    }
    let log = "algorithm: sliding_window_log";
    let wait = "on_share_exhausted: wait";
    for (limit, expected) in [
        (global(&format!("min_interval: 1s, {log}")), "min_interval: contradicts `scope: global`"),
        (global("overdraft: true"), "overdraft: contradicts `scope: global`"),
        ("scope: globl".to_owned(), "scope: `globl` is not a scope; did you mean `global`?"),
        ("unlimited: true, scope: global".to_owned(), "scope: contradicts `unlimited: true`"),
        (global("far: wait"), "far: unknown key"),
        (wait.to_owned(), "on_share_exhausted: has no effect"),
        (global(&format!("{log}, {wait}")), "on_share_exhausted: has no effect"),
        (global(&format!("{wait}, ban: {{threshold: 3}}")), "on_share_exhausted: contradicts `ban`"),
    ] {
        let limit = format!("requests_per_unit: 600, {limit}");
        assert_says(&with_table(&limit, table).unwrap_err().to_string(), &["rate_limit.", expected]);
    }
    let policy =
        |limit: &str| with_table(limit, table).unwrap().rules.rules().next().unwrap().on_share_exhausted;
    assert_eq!(policy(&global("requests_per_unit: 600, on_share_exhausted: wait")), OnShareExhausted::Wait);
    assert_eq!(policy(&global("requests_per_unit: 600")), OnShareExhausted::Deny);
}

#[test]
fn limits_that_regions_lend_no_parts_of_have_fixed_shares() {
    let read =
        |limit: &str| with_table(&format!("requests_per_unit: 600, scope: global, {limit}"), of(3, true));
    for (limit, is_lent) in [
        ("unit: day", true),
        ("unit: day, algorithm: sliding_window", true),
        ("unit: day, algorithm: token_bucket", true),
        ("unit: day, algorithm: sliding_window_log", false),
        ("algorithm: concurrency", false),
        ("unit: day, timezone: Europe/Berlin", false),
        ("unit: day, carry: {unused: 20%}", false),
    ] {
        let loaded = read(limit).unwrap_or_else(|error| panic!("{limit}: {error}"));
        assert_eq!(loaded.warnings.to_string(), "", "{limit}");
        let policy = loaded.rules.rules().next().unwrap().policy().expect("a limit");
        assert_eq!(policy.can_be_lent(), is_lent, "{limit}");
        assert_eq!(read(&format!("{limit}, on_share_exhausted: wait")).is_ok(), is_lent, "{limit}");
    }
    for refused in ["unit: day, reserve: {}", "unit: day, overdraft: true, carry: true"] {
        let error = read(refused).unwrap_err().to_string();
        assert!(error.contains("contradicts `scope: global`"), "{error}");
    }
}

#[test]
fn a_limit_of_the_primary_region_is_reported_without_one() {
    let primary = |more: &str| format!("requests_per_unit: 5, scope: primary{more}");
    for (regions, expected) in [
        (TableSize::NoTable, "`primary` has no effect without a region table"),
        (of(3, false), "the region table names no primary region"),
    ] {
        let found = with_table(&primary(""), regions).unwrap().warnings.to_string();
        assert!(found.contains(expected) && found.contains("rate_limit.scope"), "{found}");
    }
    for regions in [TableSize::Unknown, of(3, true)] {
        for more in [
            "",
            ", overdraft: true",
            ", algorithm: sliding_window_log, min_interval: 1s",
            ", ban: {}",
            ", enforce_percent: 10",
            ", on_store_error: deny",
        ] {
            let loaded =
                with_table(&primary(more), regions).unwrap_or_else(|error| panic!("{more}: {error}"));
            assert!(!loaded.warnings.to_string().contains("scope"), "{more}: {}", loaded.warnings);
        }
    }
    let candidate = primary(", candidate: {unit: minute, requests_per_unit: 9}");
    let error = with_table(&candidate, of(3, true)).unwrap_err().to_string();
    assert!(error.contains("candidate: cannot be compared beside `scope: primary`"), "{error}");
}
