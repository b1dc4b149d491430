//! The region table, and fixtures of the tests.

use std::fs;

use tollgate_fixtures::{region_table, temporary_file};

use super::*;

/// The regions of a first table with equal weights. The instance is in `us`.
pub(crate) fn regions(primary: &str, names: &[&str], shares: OwnShares) -> Regions {
    let weights: Vec<_> = names.iter().map(|name| (*name, 1)).collect();
    regions_of(&region_table(1, primary, &weights), shares)
}

/// The regions of a table.
pub(crate) fn regions_of(table: &str, shares: OwnShares) -> Regions {
    let (_directory, file) = temporary_file("regions.yaml");
    fs::write(&file, table).expect("written");
    let settings = RegionSettings { name: "us".to_owned(), table: file, peers: None };
    load(&settings, shares).expect("valid")
}

fn load(settings: &RegionSettings, shares: OwnShares) -> Result<Regions, String> {
    let (calls, _) = PrimaryCalls::new();
    Regions::load(settings, shares, calls)
}

fn table(generation: u32, weight: u32) -> String {
    region_table(generation, "", &[("us", weight), ("eu", 1)])
}

#[test]
fn a_change_is_activated_once_it_is_complete_and_a_mistake_leaves_the_active_table() {
    let (_directory, file) = temporary_file("regions.yaml");
    fs::write(&file, table(1, 1)).expect("written");
    let settings = RegionSettings { name: "us".to_owned(), table: file.clone(), peers: None };
    let regions = load(&settings, OwnShares::default()).expect("valid");
    let mut polled = Polled::new(Err(String::new()));
    let mut after = |content: &str| {
        fs::write(&file, content).expect("written");
        regions.poll(&mut polled);
        let incomplete = regions.view();
        regions.poll(&mut polled);
        (incomplete.generation, regions.view().generation, regions.view().file_error)
    };
    assert_eq!(after(&table(1, 1)), (1, 1, None));
    assert_eq!(after(&table(2, 3)), (1, 2, None));
    let (_, generation, error) = after(&table(3, 0));
    assert_eq!(generation, 2);
    let error = error.expect("refused");
    assert!(error.contains("regions.yaml:3: regions.us.weight: is 0"), "{error}");
    let (_, generation, error) = after(&table(2, 4));
    assert!(generation == 2 && error.expect("refused").contains("not above the active 2"));
    assert_eq!(after(&table(2, 3)), (2, 2, None), "the active table again");
    let former = table(4, 1).len();
    assert_eq!(after(&format!("{:former$}", table(4, 1))), (2, 4, None));
}

#[test]
fn a_server_does_not_start_with_an_invalid_table_or_one_without_its_region() {
    let (_directory, file) = temporary_file("regions.yaml");
    let refusal = |name: &str| {
        let settings = RegionSettings { name: name.to_owned(), table: file.clone(), peers: None };
        load(&settings, OwnShares::default()).map(|_| ()).expect_err("refused")
    };
    assert!(refusal("us").contains("regions.yaml: "), "{}", refusal("us"));
    fs::write(&file, table(1, 1)).expect("written");
    assert!(refusal("ap").contains("regions.yaml: regions: has no region `ap`"), "{}", refusal("ap"));
    fs::write(&file, "regions: 7").expect("written");
    assert!(refusal("us").contains("generation: is missing"), "{}", refusal("us"));
}
