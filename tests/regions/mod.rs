//! Limits of `scope: global` with a server of its own in each region.

mod loans;
mod peers;

use crate::support::prelude::*;

/// Regions of the tests, with their weights.
const REGIONS: [(&str, u32); 3] = [("ap", 1), ("eu", 2), ("us", 4)];

const LIMIT: u32 = 100;

fn table(generation: u32, regions: &[(&str, u32)]) -> String {
    let region = |(name, weight): &(&str, u32)| {
        format!("  {name}: {{address: 'https://{name}:8444', weight: {weight}}}\n")
    };
    let regions: String = regions.iter().map(region).collect();
    format!("generation: {generation}\nregions:\n{regions}")
}

/// A directory with the table of a test.
fn table_file(generation: u32) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("regions.yaml"), table(generation, &REGIONS)).expect("written");
    directory
}

fn start(region: &str, table: &Path, rules: &Path, store: &[&str]) -> Tollgate {
    let file = table.join("regions.yaml");
    let flags = ["--region", region, "--regions", file.to_str().expect("a path")];
    Tollgate::start(rules, &[&flags, store].concat())
}

fn limits() -> TempDir {
    let limit = |algorithm: &str, more: &str| {
        format!(
            "- {{key: {algorithm}, rate_limit: {{unit: year, requests_per_unit: {LIMIT}, algorithm: {algorithm}, scope: global{more}}}}}\n"
        )
    };
    let all =
        ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket"].map(|name| limit(name, ""));
    rules(&format!(
        "domain: d\ndescriptors:\n{}- {{key: leased, rate_limit: {{unit: year, requests_per_unit: {LIMIT}, scope: global, sync: leased}}}}\n\
         - {{key: regional, rate_limit: {{unit: year, requests_per_unit: {LIMIT}}}}}\n",
        all.concat()
    ))
}

/// Hits of a descriptor that one region admits of twice the limit, and what its last answer states as remaining.
async fn admitted(instance: &Tollgate, key: &str, value: &str) -> (u32, u32) {
    let (mut client, mut admitted, mut remaining) = (instance.client().await, 0, 0);
    for _ in 0..2 * LIMIT {
        let answer = client.call(request("d", &[&[(key, value)]])).await.expect("an answer");
        admitted += u32::from(answer.overall_code() == Code::Ok);
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref().expect("a limit");
        assert_eq!(limit.requests_per_unit, LIMIT, "the limit of all regions is reported");
        remaining = status.limit_remaining;
    }
    (admitted, remaining)
}

async fn add_up(instances: &[Tollgate]) {
    for key in ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket", "leased"] {
        let (mut sum, mut of_regions) = (0, Vec::new());
        for instance in instances {
            let (admitted, remaining) = admitted(instance, key, "one").await;
            assert_eq!(remaining, 0, "{key}");
            sum += admitted;
            of_regions.push(admitted);
        }
        let near = |(part, expected): (&u32, u32)| part.abs_diff(expected) <= 1;
        assert!(of_regions.iter().zip([14, 28, 57]).all(near), "{key}: {of_regions:?}");
        // The rate of a bucket is rounded down in each region.
        let least = if key == "token_bucket" { LIMIT - 2 } else { LIMIT };
        assert!((least..=LIMIT).contains(&sum), "{key}: {of_regions:?}");
    }
    for instance in instances {
        assert_eq!(admitted(instance, "regional", "one").await.0, LIMIT);
    }
}

#[tokio::test]
async fn the_shares_of_all_regions_add_up_to_the_limit_in_memory() {
    let (table, rules) = (table_file(1), limits());
    let instances = REGIONS.map(|(name, _)| start(name, table.path(), rules.path(), &[]));
    add_up(&instances).await;
    let page = instances[0].metrics();
    let denied = "tollgate_rule_share_denials_total{domain=\"d\",rule=\"fixed_window\"} ";
    assert!(page.lines().any(|line| line.starts_with(denied) && !line.ends_with(" 0")), "{page}");
    assert!(!page.contains("tollgate_rule_share_denials_total{domain=\"d\",rule=\"regional\"}"));
    let config = http::get(&instances[0].admin_url("/rlconfig")).body;
    assert!(
        config.lines().any(|line| line.starts_with("d.leased: ") && line.ends_with(", scope: global")),
        "{config}"
    );
}

#[tokio::test]
async fn the_shares_of_all_regions_add_up_to_the_limit_in_redis() {
    let (table, rules) = (table_file(1), limits());
    let stores = [(); 3].map(|()| Redis::start());
    let mut instances = Vec::new();
    for ((name, _), store) in REGIONS.into_iter().zip(&stores) {
        let store = store.url();
        let arguments = ["--store", &store, "--store-timeout", "20s", "--workers", "1"];
        instances.push(start(name, table.path(), rules.path(), &arguments));
    }
    add_up(&instances).await;
}

#[tokio::test]
async fn a_changed_table_lowers_a_share_at_once_and_raises_none_alone() {
    let (table_file, rules) = (table_file(1), limits());
    let instance = start("us", table_file.path(), rules.path(), &[]);
    let change = |generation, us: u32| {
        let changed = table(generation, &[("ap", 1), ("eu", 2), ("us", us)]);
        let file = table_file.path().join("regions.yaml");
        fs::write(&file, changed).expect("written");
        let expected = format!("tollgate_region_generation {generation}");
        wait("the table is not activated", || instance.metrics().lines().any(|line| line == expected));
    };
    change(2, 97);
    assert!((57..=58).contains(&admitted(&instance, "fixed_window", "raised").await.0));
    change(3, 1);
    assert_eq!(admitted(&instance, "fixed_window", "lowered").await.0, LIMIT / 4);
    fs::write(table_file.path().join("regions.yaml"), "generation: 2").expect("written");
    wait("the mistake is not counted", || {
        let page = instance.metrics();
        page.lines().any(|line| line == "tollgate_region_table_reload_failures_total 1")
    });
    assert_eq!(admitted(&instance, "fixed_window", "kept").await.0, LIMIT / 4);
}
