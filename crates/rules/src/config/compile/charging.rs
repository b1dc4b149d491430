//! Charging of a domain: `atomic` and `hash_tag` at the root of its files, and `sync` in their `defaults`.

use std::rc::Rc;

use tollgate_core::SyncMode;

use super::{Origin, Site, domain::DomainBuilder};
use crate::{
    Wildcard,
    config::{
        problem::{Path, Problems},
        raw::{RawFile, Stated},
        reader::excerpt,
        vocabulary::nearest,
        yaml::Position,
    },
};

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
