//! How a domain's requests are charged, and what makes their hash tags: what its files state at their roots.

use std::rc::Rc;

use super::{Origin, Site, domain::DomainBuilder};
use crate::{
    Wildcard,
    config::{
        problem::{Path, Problems},
        raw::{RawFile, Stated},
        reader::excerpt,
        vocabulary::nearest,
    },
};

/// Keys that a hash tag may have.
const MAX_TAG_KEYS: usize = 64;

/// The keys of a hash tag, and where each stands.
pub(super) type TagKeys = Vec<(Rc<str>, Site)>;

impl DomainBuilder {
    /// Takes what a file states of the whole domain: the first one counts, and none may say otherwise, since a
    /// request is charged in one way.
    pub(super) fn set_charging(&mut self, file: &RawFile, problems: &mut Problems) {
        if let Some(Stated { at, value }) = file.atomic.stated() {
            let origin = Origin { file: file.name.clone(), at: *at };
            let (first, known) = self.atomic.get_or_insert_with(|| (*value, origin.clone()));
            if *first != *value {
                let message = format!("differs from `{first}` at {known}; a domain has one way to charge");
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
                    "differs from [{}] at {known}; a domain has one way to name its hash tags",
                    keys.join(", ")
                );
                problems.error(&file.name, stated.at, Path::Root.key("hash_tag"), message);
            }
        }
    }

    /// Warns of keys of the hash tag that no request can have beside a limit.
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

    /// Whether a descriptor has the key, or a pattern that matches it.
    fn has_key(&self, key: &str) -> bool {
        let patterns = || self.keys.iter().filter_map(|key| Wildcard::parse(key));
        // A pattern sees the value too, behind a `_`.
        let with_value = format!("{key}_");
        self.keys.contains(key)
            || patterns().any(|pattern| pattern.matches(key) || pattern.matches(&with_value))
    }
}

/// The keys that a file states, unless they are wrong.
fn tag_keys(
    file: &RawFile,
    stated: &Stated<Vec<Stated<Rc<str>>>>,
    problems: &mut Problems,
) -> Option<TagKeys> {
    let path = Path::Root.key("hash_tag");
    if stated.value.is_empty() {
        let message = "is empty; name the keys whose values make the hash tag, or leave it out";
        problems.error(&file.name, stated.at, path, message);
        return None;
    }
    if stated.value.len() > MAX_TAG_KEYS {
        let message = format!("names more than {MAX_TAG_KEYS} keys");
        problems.error(&file.name, stated.at, path, message);
        return None;
    }
    let mut keys = TagKeys::new();
    for (index, Stated { at, value }) in stated.value.iter().enumerate() {
        let path = path.item(index);
        if value.is_empty() {
            problems.error(&file.name, *at, path, "is empty; expected a key of the domain's descriptors");
        } else if keys.iter().any(|(known, _)| known == value) {
            problems.error(&file.name, *at, path, "is in the list already");
        } else {
            let origin = Origin { file: file.name.clone(), at: *at };
            keys.push((value.clone(), Site { origin, path: path.to_string() }));
        }
    }
    (keys.len() == stated.value.len()).then_some(keys)
}
