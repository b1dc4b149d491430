//! A domain while its files are compiled, and what only the whole domain can tell.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
};

use super::{Origin, Site, budget::Budget, charging::TagKeys, parameters::Chosen, tree_level::LevelBuilder};
use crate::{
    Domain, DomainIndex, Limit, OnStoreError, Rule, Value,
    config::{
        problem::{Path, Problems},
        raw::{RawFile, Stated},
    },
};
use tollgate_core::{
    RecordId,
    algorithm::{Algorithm, Charging},
};

/// A domain to which files add.
#[derive(Debug)]
pub(super) struct DomainBuilder {
    pub(super) name: Rc<str>,
    /// The file that stated the domain first.
    pub(super) first_file: Rc<str>,
    /// The first level, which all files share.
    pub(super) root: LevelBuilder,
    default_algorithm: Option<(Algorithm, Origin)>,
    default_on_store_error: Option<OnStoreError>,
    /// Whether requests are charged all or none.
    pub(super) atomic: Option<(bool, Origin)>,
    /// What makes the hash tags.
    pub(super) hash_tag: Option<(TagKeys, Origin)>,
    /// Where limits or defaults say that counters may be leased.
    pub(super) leased: Vec<Site>,
    /// The keys of all descriptors.
    pub(super) keys: HashSet<Rc<str>>,
    /// The names of all limits.
    names: HashSet<Rc<str>>,
    /// The names that limits replace, and where they say so.
    replaced: Vec<(Rc<str>, Site)>,
    counters: HashMap<RecordId, Arc<Rule>>,
}

impl DomainBuilder {
    pub(super) fn new(name: Rc<str>, first_file: Rc<str>) -> Self {
        Self {
            name,
            first_file,
            root: LevelBuilder::default(),
            default_algorithm: None,
            default_on_store_error: None,
            atomic: None,
            hash_tag: None,
            leased: Vec::new(),
            keys: HashSet::new(),
            names: HashSet::new(),
            replaced: Vec::new(),
            counters: HashMap::new(),
        }
    }

    /// Takes the default that a file states for the limits which requests bring along: the first one counts.
    pub(super) fn set_default_algorithm(
        &mut self,
        file: &RawFile,
        stated: Option<Chosen>,
        problems: &mut Problems,
    ) {
        let Some(Chosen { algorithm, at }) = stated else { return };
        match &self.default_algorithm {
            None => {
                self.default_algorithm = Some((algorithm, Origin { file: file.name.clone(), at }));
            }
            Some((first, origin)) if *first != algorithm => {
                let message = format!(
                    "differs from `{}` at {origin}, which stays the domain's default for limits that \
                     requests bring along",
                    first.name()
                );
                let defaults = Path::Root.key("defaults");
                problems.warning(&file.name, at, defaults.key("algorithm"), message);
            }
            Some(_) => {}
        }
    }

    /// Takes the default that a file states for the limits which requests bring along: the first one counts.
    pub(super) fn set_default_on_store_error(&mut self, stated: Option<Stated<OnStoreError>>) {
        let stated = stated.map(|stated| stated.value);
        self.default_on_store_error = self.default_on_store_error.or(stated);
    }

    /// Remembers that a descriptor has the key.
    pub(super) fn add_key(&mut self, key: &Rc<str>) {
        if !self.keys.contains(key) {
            self.keys.insert(key.clone());
        }
    }

    /// Remembers that a limit has the name.
    pub(super) fn add_name(&mut self, name: Rc<str>) {
        self.names.insert(name);
    }

    /// Remembers that a limit replaces the name.
    pub(super) fn add_replaced(&mut self, name: Rc<str>, site: Site) {
        self.replaced.push((name, site));
    }

    /// Takes a rule's counters in.
    ///
    /// # Errors
    /// The origin of a rule whose counters would mix with these: equal ids of different steps. Where the steps
    /// are equal too, the open values in the counters' tags tell them apart.
    pub(super) fn add_counter(&mut self, rule: &Arc<Rule>) -> Result<(), String> {
        if rule.limit == Limit::Unlimited {
            return Ok(());
        }
        let known = self.counters.entry(rule.record_id()).or_insert_with(|| rule.clone());
        match steps(known).eq(steps(rule)) {
            true => Ok(()),
            false => Err(format!("{}:{}", known.origin.0, known.origin.1)),
        }
    }

    pub(super) fn finish(self, problems: &mut Problems, budget: &mut Budget) -> Domain {
        for (name, site) in &self.replaced {
            if !self.names.contains(name) {
                let message = format!("no limit of the domain `{}` has the name `{name}`", self.name);
                site.warn(problems, message);
            }
        }
        self.warn_of_unknown_tag_keys(problems);
        self.warn_of_leases_without_effect(problems);
        let hash_tag = self.hash_tag.into_iter().flat_map(|(keys, _)| keys);
        Domain {
            name: (*self.name).into(),
            root: self.root.finish(problems, budget),
            default_algorithm: self.default_algorithm.map(|(algorithm, _)| algorithm).unwrap_or_default(),
            default_on_store_error: self.default_on_store_error,
            charging: match self.atomic {
                Some((true, _)) => Charging::AllOrNone,
                Some((false, _)) | None => Charging::Independent,
            },
            hash_tag: hash_tag.map(|(key, _)| (*key).into()).collect(),
            index: DomainIndex::default(),
        }
    }
}

/// What a rule's id is a hash of: its steps, and whether each is open.
fn steps(rule: &Rule) -> impl Iterator<Item = (bool, &str)> {
    rule.segments.iter().map(|segment| match segment.value {
        Value::Open => (true, &*segment.key),
        Value::Stated | Value::Shared => (false, &*segment.stated),
    })
}
