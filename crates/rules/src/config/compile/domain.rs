//! Builder of a domain, and the checks that need the whole domain.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
};

use tollgate_core::{
    RecordId, SyncMode,
    algorithm::{Algorithm, Charging},
};

use super::{
    Origin, Site, budget::Budget, charging::TagKeys, parameters::ChosenAlgorithm, tree_level::LevelBuilder,
};
use crate::{
    Domain, DomainIndex, Limit, OnStoreError, Rule, Value,
    config::{
        problem::{Path, Problems},
        raw::{RawFile, Stated},
    },
};

/// Domain to which files add descriptors.
#[derive(Debug)]
pub(super) struct DomainBuilder {
    pub(super) name: Rc<str>,
    /// The file that stated the domain first.
    pub(super) first_file: Rc<str>,
    /// First level, which all files share.
    pub(super) root: LevelBuilder,
    default_algorithm: Option<(Algorithm, Origin)>,
    default_on_store_error: Option<OnStoreError>,
    /// `atomic`: whether requests are charged all or none.
    pub(super) atomic: Option<(bool, Origin)>,
    /// Whether a limit that denies counts the hits nevertheless.
    pub(super) counts_denied: bool,
    /// Keys of the hash tags.
    pub(super) hash_tag: Option<(TagKeys, Origin)>,
    /// Positions of `sync: leased` and `sync: auto` in limits and defaults.
    pub(super) leased: Vec<(Site, SyncMode)>,
    /// Positions of `candidate` in limits.
    pub(super) candidates: Vec<Site>,
    /// Keys of all descriptors.
    pub(super) keys: HashSet<Rc<str>>,
    /// Names of all limits.
    names: HashSet<Rc<str>>,
    /// Names that limits replace, with their positions.
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
            counts_denied: false,
            hash_tag: None,
            leased: Vec::new(),
            candidates: Vec::new(),
            keys: HashSet::new(),
            names: HashSet::new(),
            replaced: Vec::new(),
            counters: HashMap::new(),
        }
    }

    /// Sets the algorithm of limit overrides from a file's defaults; the first file has precedence.
    pub(super) fn set_default_algorithm(
        &mut self,
        file: &RawFile,
        stated: Option<ChosenAlgorithm>,
        problems: &mut Problems,
    ) {
        let Some(ChosenAlgorithm { algorithm, at }) = stated else { return };
        match &self.default_algorithm {
            None => {
                self.default_algorithm = Some((algorithm, Origin { file: file.name.clone(), at }));
            }
            Some((first, origin)) if *first != algorithm => {
                let message = format!(
                    "differs from `{}` at {origin}, which remains the domain's default for limit overrides",
                    first.name()
                );
                let defaults = Path::Root.key("defaults");
                problems.warning(&file.name, at, defaults.key("algorithm"), message);
            }
            Some(_) => {}
        }
    }

    /// Sets the `on_store_error` policy of limit overrides from a file's defaults; the first file has precedence.
    pub(super) fn set_default_on_store_error(&mut self, stated: Option<Stated<OnStoreError>>) {
        let stated = stated.map(|stated| stated.value);
        self.default_on_store_error = self.default_on_store_error.or(stated);
    }

    /// Records the key of a descriptor.
    pub(super) fn add_key(&mut self, key: &Rc<str>) {
        if !self.keys.contains(key) {
            self.keys.insert(key.clone());
        }
    }

    /// Records the name of a limit.
    pub(super) fn add_name(&mut self, name: Rc<str>) {
        self.names.insert(name);
    }

    /// Records a name that a limit replaces.
    pub(super) fn add_replaced(&mut self, name: Rc<str>, site: Site) {
        self.replaced.push((name, site));
    }

    /// Records the identifier of a rule's counters.
    ///
    /// # Errors
    /// The origin of a rule of the same identifier but other steps, whose counters would mix with these. If the steps are
    /// equal too, the open values in the hash tags distinguish the counters.
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
        self.reject_candidates(problems);
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
            counts_denied: self.counts_denied,
            hash_tag: hash_tag.map(|(key, _)| (*key).into()).collect(),
            index: DomainIndex::default(),
            sheds: false,
            address_keys: std::collections::BTreeSet::default(),
        }
    }
}

/// Steps of a rule, which its identifier is a hash of, and whether each is open.
fn steps(rule: &Rule) -> impl Iterator<Item = (bool, &str)> {
    let segments = rule.segments.iter().map(|segment| match segment.value {
        Value::Open => (true, &*segment.key),
        Value::Stated | Value::Shared => (false, &*segment.stated),
    });
    segments.chain(rule.part.iter().map(|part| (false, &*part.label)))
}
