//! Fixtures of the unit tests.

use std::{ffi::OsString, fs, sync::Arc};

use tollgate_limiter::{ActiveRules, OwnShares};
use tollgate_rules::{
    Rules,
    config::{Options, load_files},
};

use crate::{
    regions::Regions,
    settings::{self, Command, RegionSettings, Settings},
};

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

/// The regions of the first table, with a section for each name. The instance is in `us`.
pub(crate) fn regions(primary: &str, names: &[&str], shares: OwnShares) -> Regions {
    let regions: String =
        names.iter().map(|name| format!("  {name}: {{address: 'https://{name}:1'}}\n")).collect();
    regions_of(&format!("generation: 1\n{primary}\nregions:\n{regions}"), shares)
}

/// The regions of a table.
pub(crate) fn regions_of(table: &str, shares: OwnShares) -> Regions {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("regions.yaml");
    fs::write(&file, table).expect("written");
    let settings = RegionSettings { name: "us".to_owned(), table: file, peers: None };
    Regions::load(&settings, shares).expect("valid")
}
