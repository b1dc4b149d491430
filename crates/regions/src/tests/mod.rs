//! Fixtures of the tests.

use std::fs;

use tollgate_fixtures::{region_table, temporary_file};
use tollgate_limiter::OwnShares;

use crate::{RegionSettings, Regions};

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
    Regions::load(&settings, shares).expect("valid")
}
