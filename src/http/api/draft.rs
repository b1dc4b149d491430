//! Rule files, as callers send them.

use std::{collections::btree_map::Entry, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};

use super::error::{ApiError, Invalid};
use crate::{
    config::{self, LoadError, Loaded, Options},
    control::{Files, bounds::check_files},
};

/// Files at the most.
const MOST: usize = 1_000;

/// Bytes of a name at the most.
const LONGEST_NAME: usize = 255;

/// Rule files by name, each name once.
#[derive(Debug)]
pub(super) struct DraftFiles(pub(super) Files);

impl<'de> Deserialize<'de> for DraftFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;
        impl<'de> Visitor<'de> for Named {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("files by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
                let mut files = Files::new();
                while let Some((name, text)) = map.next_entry()? {
                    match files.entry(name) {
                        Entry::Vacant(place) => drop(place.insert(text)),
                        Entry::Occupied(place) => {
                            return Err(A::Error::custom(format!("the file {} comes twice", place.key())));
                        }
                    }
                    if files.len() > MOST {
                        return Err(A::Error::custom(format!("expected {MOST} files at the most")));
                    }
                }
                Ok(files)
            }
        }
        deserializer.deserialize_map(Named).map(Self)
    }
}

/// Loads files as they would be from a directory. Takes long where they are many.
pub(super) fn load(files: &Files, options: Options) -> Result<Loaded, Invalid> {
    if let Some(name) = files.keys().find(|name| !is_name(name)) {
        let expected =
            "expected the name of a file below the directory of the rules, which ends in .yaml or .yml";
        return Err(Invalid::of_file(name, expected));
    }
    let contents = files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
    config::load_files(contents, options).map_err(|error: LoadError| Invalid::from(&error))
}

/// The same, where files that are not valid are an error.
pub(super) fn load_valid(files: &Files, options: Options) -> Result<Loaded, ApiError> {
    load(files, options).map_err(|invalid| ApiError::Invalid(Box::new(invalid)))
}

/// The same, of files that are to be a version: they may be too much for one.
pub(super) fn load_version(files: &Files, options: Options) -> Result<Loaded, Invalid> {
    match (check_files(files), files.iter().max_by_key(|(_, text)| text.len())) {
        (Err(error), Some((name, _))) => Err(Invalid::of_file(name, &error.to_string())),
        _ => load(files, options),
    }
}

/// Whether a directory could have such a file, and it would be loaded.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.');
    let is_odd = |c: char| c.is_control() || c == '\\';
    name.len() <= LONGEST_NAME
        && (name.ends_with(".yaml") || name.ends_with(".yml"))
        && name.split('/').all(is_part)
        && !name.contains(is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_that_a_directory_may_have() {
        for name in ["a.yaml", "a.yml", "teams/search.yaml", "a b.yaml", "ä.yaml"] {
            assert!(is_name(name), "{name}");
        }
        for name in
            ["", "a", ".yaml", "/a.yaml", "../a.yaml", "a/../b.yaml", "a//b.yaml", ".a/b.yaml", "a\\b.yaml"]
        {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_name("a\n.yaml") && !is_name(&format!("{}.yaml", "x".repeat(LONGEST_NAME))));
    }

    #[test]
    fn a_name_comes_once() {
        let read = |text: &str| serde_json::from_str::<DraftFiles>(text).map(|files| files.0.len());
        assert_eq!(read(r#"{"a.yaml": "", "b.yaml": ""}"#).ok(), Some(2));
        assert!(read(r#"{"a.yaml": "", "a.yaml": ""}"#).is_err());
        assert!(read(r#"{"a.yaml": 1}"#).is_err());
    }
}
