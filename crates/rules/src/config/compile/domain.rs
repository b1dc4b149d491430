//! Builder of a domain: what its files state for the whole domain, and the checks that need all of it.

use std::collections::{HashMap, HashSet};
use std::{rc::Rc, sync::Arc};

use tollgate_core::algorithm::{Algorithm, Charging};
use tollgate_core::{RecordId, SyncMode};

use super::tree_level::{Budget, LevelBuilder};
use super::{Origin, Site};
use crate::config::problem::{Path, Problems};
use crate::config::raw::{RawFile, Stated};
use crate::config::vocabulary::nearest;
use crate::config::yaml::{Position, excerpt};
use crate::{Domain, Limit, OnStoreError, Rule, Value, Wildcard};

/// Domain to which files add descriptors.
#[derive(Debug, Default)]
pub(super) struct DomainBuilder {
    pub(super) name: Rc<str>,
    /// The file that stated the domain first.
    pub(super) first_file: Rc<str>,
    /// First level, which all files share.
    pub(super) root: LevelBuilder,
    default_algorithm: Option<(Algorithm, Origin)>,
    pub(super) default_on_store_error: Option<OnStoreError>,
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
    pub(super) names: HashSet<Rc<str>>,
    /// Names that limits replace, with their positions.
    pub(super) replaced: Vec<(Rc<str>, Site)>,
    counters: HashMap<RecordId, Arc<Rule>>,
}

impl DomainBuilder {
    pub(super) fn new(name: Rc<str>, first_file: Rc<str>) -> Self {
        Self { name, first_file, ..Self::default() }
    }

    /// Sets the algorithm of limit overrides from a file's defaults; the first file has precedence.
    pub(super) fn set_default_algorithm(
        &mut self,
        file: &RawFile,
        stated: Option<Stated<Algorithm>>,
        problems: &mut Problems,
    ) {
        let Some(Stated { at, value: algorithm }) = stated else { return };
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
            ..Domain::default()
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

/// Maximum number of keys of a hash tag.
const MAX_TAG_KEYS: usize = 64;

/// Keys of a hash tag with their positions.
pub(super) type TagKeys = Vec<(Rc<str>, Site)>;

impl DomainBuilder {
    /// Sets what a file states for the whole domain. A request is charged in one way, so the first statement counts and
    /// files that differ from it are errors.
    pub(super) fn set_charging(&mut self, file: &RawFile, problems: &mut Problems) {
        if let Some(Stated { at, value }) = file.atomic.stated() {
            let origin = Origin { file: file.name.clone(), at: *at };
            let (first, known) = self.atomic.get_or_insert_with(|| (*value, origin.clone()));
            if *first != *value {
                let message = format!(
                    "differs from `{first}` at {known}; expected the same value in all files of a domain"
                );
                problems.error(&file.name, *at, Path::Root.key("atomic"), message);
            }
        }
        if let Some(stated) = file.hash_tag.stated()
            && let Some(keys) = tag_keys(file, stated, problems)
        {
            let origin = Origin { file: file.name.clone(), at: stated.at };
            let (first, known) = self.hash_tag.get_or_insert((keys, origin));
            if !first.iter().map(|(key, _)| key).eq(stated.value.iter().map(|key| &key.value)) {
                let keys: Vec<&str> = first.iter().map(|(key, _)| &**key).collect();
                let message = format!(
                    "differs from [{}] at {known}; expected the same keys in all files of a domain",
                    keys.join(", ")
                );
                problems.error(&file.name, stated.at, Path::Root.key("hash_tag"), message);
            }
        }
    }

    /// Charges a request that a limit denies to no other one, unless a file states `atomic`.
    pub(super) fn stop_when_denied(&mut self) {
        if self.atomic.is_none() {
            let origin = Origin { file: "--stop-when-denied".into(), at: Position::WHOLE };
            self.atomic = Some((true, origin));
            self.counts_denied = true;
        }
    }

    /// Warns of keys of the hash tag that no descriptor of the domain has.
    pub(super) fn warn_of_unknown_tag_keys(&self, problems: &mut Problems) {
        let tag = self.hash_tag.iter().flat_map(|(keys, _)| keys);
        for (key, site) in tag.filter(|(key, _)| !self.has_key(key)) {
            let stated = self.keys.iter().map(|key| &**key);
            let meant = nearest(key, stated).map(|meant| format!("; did you mean `{meant}`?"));
            let key = excerpt(key);
            let message = format!(
                "no descriptor of the domain `{}` has the key `{key}`{}",
                self.name,
                meant.unwrap_or_default()
            );
            site.warn(problems, message);
        }
    }

    /// Records where a file states a default that allows leases.
    pub(super) fn set_default_sync(&mut self, file: &Rc<str>, stated: Option<Stated<SyncMode>>) {
        if let Some(Stated { at, value }) = stated.filter(|stated| stated.value.may_lease()) {
            let path = Path::Root.key("defaults").key("sync").to_string();
            self.leased.push((Site { origin: Origin { file: file.clone(), at }, path }, value));
        }
    }

    /// Warns of `sync: leased` and `sync: auto` in a domain whose requests are charged all or none.
    pub(super) fn warn_of_leases_without_effect(&self, problems: &mut Problems) {
        let Some((true, origin)) = &self.atomic else { return };
        for (site, sync) in &self.leased {
            let effect = match sync {
                SyncMode::Auto => "works as `strict`",
                SyncMode::Strict | SyncMode::Leased => "has no effect",
            };
            let message = format!(
                "{effect} beside `atomic: true` at {origin}, which needs all counters of a request at once"
            );
            site.warn(problems, message);
        }
    }

    /// Rejects candidates in a domain whose requests are charged all or none.
    pub(super) fn reject_candidates(&self, problems: &mut Problems) {
        let Some((true, origin)) = &self.atomic else { return };
        for site in &self.candidates {
            let message = format!(
                "cannot be compared beside `atomic: true` at {origin}: what is charged depends on all limits of a \
                 request; expected a domain without it"
            );
            site.report(problems, message);
        }
    }

    /// Whether a descriptor has the key, or a pattern that matches it.
    pub(super) fn has_key(&self, key: &str) -> bool {
        let patterns = || self.keys.iter().filter_map(|key| Wildcard::parse(key));
        // Patterns are matched against `key_value`.
        let with_value = format!("{key}_");
        self.keys.contains(key)
            || patterns().any(|pattern| pattern.matches(key) || pattern.matches(&with_value))
    }
}

/// Reads the keys of a hash tag; `None` if they are invalid.
fn tag_keys(
    file: &RawFile,
    stated: &Stated<Vec<Stated<Rc<str>>>>,
    problems: &mut Problems,
) -> Option<TagKeys> {
    let path = Path::Root.key("hash_tag");
    if stated.value.is_empty() {
        let message = "is empty; expected the keys whose values form the hash tag";
        problems.error(&file.name, stated.at, path, message);
        return None;
    }
    if stated.value.len() > MAX_TAG_KEYS {
        let message = format!("has too many keys; expected at most {MAX_TAG_KEYS}");
        problems.error(&file.name, stated.at, path, message);
        return None;
    }
    let mut keys = TagKeys::new();
    for (index, Stated { at, value }) in stated.value.iter().enumerate() {
        let path = path.item(index);
        if value.is_empty() {
            problems.error(&file.name, *at, path, "is empty; expected a key of the domain's descriptors");
        } else if keys.iter().any(|(known, _)| known == value) {
            problems.error(&file.name, *at, path, "is a duplicate; expected each key once");
        } else {
            let origin = Origin { file: file.name.clone(), at: *at };
            keys.push((value.clone(), Site { origin, path: path.to_string() }));
        }
    }
    (keys.len() == stated.value.len()).then_some(keys)
}
