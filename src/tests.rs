//! Fixtures of the unit tests.

use std::{ffi::OsString, fs, path::PathBuf, sync::Arc};

use tempfile::TempDir;
use tollgate_core::{
    RecordId,
    clock::{Clock, Timestamp},
    descriptor::Entry,
};
use tollgate_limiter::{ActiveRules, OwnShares, cell_of};
use tollgate_rules::{
    Rules,
    config::{Options, load_files},
};
use tollgate_store::{MemoryStore, Store, key::CellKey};

use crate::{
    regions::Regions,
    settings::{self, Command, RegionSettings, Settings},
};

/// The start of an HTTP/2 connection: the preface, and a frame of settings without any.
pub(crate) const HTTP2_START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A time, in microseconds since 1970.
pub(crate) const NOW: u64 = 1_700_000_000_000_000;

/// The path of a file, which is not there, in a directory that is removed on drop.
pub(crate) fn temporary_file(name: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join(name);
    (directory, file)
}

/// The settings that the flags of `line` have.
pub(crate) fn settings(line: &str) -> Settings {
    let words = ["tollgate"].into_iter().chain(line.split_whitespace()).map(OsString::from);
    match settings::parse(words, []) {
        Ok(Command::Serve(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

/// The rules of files with a domain each, separated by `---`.
pub(crate) fn rules(yaml: &str) -> Rules {
    let files = yaml.split("---").map(str::trim).enumerate();
    let files = files.map(|(at, yaml)| (format!("{at}.yaml"), yaml.as_bytes().to_vec()));
    load_files(files, Options { strict: true, ..Options::default() }).expect("valid").rules
}

/// Such rules, activated.
pub(crate) fn active(yaml: &str) -> Arc<ActiveRules> {
    let active = Arc::new(ActiveRules::default());
    active.replace(Arc::new(rules(yaml)));
    active
}

/// A table of regions with a weight each, and with a primary region unless that name is empty.
pub(crate) fn region_table(generation: u32, primary: &str, weights: &[(&str, u32)]) -> String {
    let primary = if primary.is_empty() { String::new() } else { format!("primary: {primary}\n") };
    let region = |(name, weight): &(&str, u32)| {
        format!("  {name}: {{address: 'https://{name}:1', weight: {weight}}}\n")
    };
    let regions: String = weights.iter().map(region).collect();
    format!("generation: {generation}\n{primary}regions:\n{regions}")
}

/// An empty store in memory, whose clock stands still at `NOW`.
pub(crate) fn memory_store() -> Store {
    Store::new(MemoryStore::new(1_000, Clock::manual(Timestamp::from_micros(NOW))))
}

/// The counter of the rule of domain `d` for an entry.
pub(crate) fn counter(active: &ActiveRules, key: &str, value: &str) -> (CellKey, RecordId) {
    let rules = active.load().expect("loaded");
    let domain = rules.domain("d").expect("stated");
    let entries = [Entry { key, value }];
    let rule = domain.root.rule(&entries).expect("stated");
    (cell_of(domain, rule, &entries), rule.record_id())
}

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
