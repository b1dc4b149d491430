//! Keys of the configuration language.

/// Mapping of the language that has keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// The root of a file.
    File,
    /// The mapping under `defaults`.
    Defaults,
    /// An element of `descriptors`.
    Descriptor,
    /// The mapping under `rate_limit`.
    RateLimit,
    /// An element of `replaces`.
    Replaces,
    /// The mapping under `ban`.
    Ban,
    /// The mapping under `load_shedding`.
    LoadShedding,
    /// The mapping under `candidate`.
    Candidate,
    /// The mapping under `carry`.
    Carry,
    /// The mapping under `reserve`.
    Reserve,
}

/// Status of a key in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyStatus {
    /// The key belongs to the section.
    Known,
    /// envoyproxy/ratelimit ignores the key here silently; it belongs to this other section.
    Ignored(Section),
    /// The key is one of tollgate's own, and belongs to this other section.
    Misplaced(Section),
    /// The key does not exist; this one was possibly meant.
    Unknown(Option<&'static str>),
}

/// Language that defines a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    /// envoyproxy/ratelimit.
    Reference,
    /// tollgate only.
    Extension,
}

use Language::{Extension, Reference};
use Section::{
    Ban, Candidate, Carry, Defaults, Descriptor, File, LoadShedding, RateLimit, Replaces, Reserve,
};

/// Key of the language.
struct Key {
    name: &'static str,
    language: Language,
    /// Sections that have the key; a misplaced key belongs to the first.
    sections: &'static [Section],
}

const fn key(name: &'static str, language: Language, sections: &'static [Section]) -> Key {
    Key { name, language, sections }
}

/// All keys of the language, in the order of messages.
const KEYS: &[Key] = &[
    key("domain", Reference, &[File]),
    key("key", Reference, &[Descriptor]),
    key("value", Reference, &[Descriptor]),
    key("regex", Extension, &[Descriptor]),
    key("cidr", Extension, &[Descriptor]),
    key("rate_limit", Reference, &[Descriptor]),
    key("rate_limits", Extension, &[Descriptor]),
    key("descriptors", Reference, &[Descriptor, File]),
    key("defaults", Extension, &[File]),
    key("hash_tag", Extension, &[File]),
    key("atomic", Extension, &[File]),
    key("shadow_mode", Reference, &[Descriptor]),
    key("quota_mode", Reference, &[Descriptor]),
    key("detailed_metric", Reference, &[Descriptor]),
    key("value_to_metric", Reference, &[Descriptor]),
    key("share_threshold", Reference, &[Descriptor]),
    key("metadata", Reference, &[Descriptor]),
    key("weight", Extension, &[Descriptor]),
    key("unit", Reference, &[RateLimit, Defaults, Candidate]),
    key("requests_per_unit", Reference, &[RateLimit, Defaults, Candidate]),
    key("unlimited", Reference, &[RateLimit]),
    key("name", Reference, &[RateLimit, Replaces]),
    key("replaces", Reference, &[RateLimit]),
    key("algorithm", Extension, &[RateLimit, Defaults, Candidate]),
    key("burst", Extension, &[RateLimit, Defaults, Candidate]),
    key("min_interval", Extension, &[RateLimit, Defaults, Candidate]),
    key("lease_ttl", Extension, &[RateLimit, Defaults]),
    key("overdraft", Extension, &[RateLimit, Defaults, Candidate]),
    key("max_debt", Extension, &[RateLimit, Defaults, Candidate]),
    key("carry", Extension, &[RateLimit, Defaults, Candidate]),
    key("reserve", Extension, &[RateLimit]),
    key("ttl", Extension, &[Reserve]),
    key("unsettled", Extension, &[Reserve]),
    key("add", Extension, &[Reserve]),
    key("cap", Extension, &[Reserve]),
    key("window", Extension, &[RateLimit, Defaults, Candidate]),
    key("unit_multiplier", Extension, &[RateLimit, Defaults, Candidate]),
    key("timezone", Extension, &[RateLimit, Candidate]),
    key("anchor", Extension, &[RateLimit, Candidate]),
    key("sync", Extension, &[RateLimit, Defaults]),
    key("scope", Extension, &[RateLimit, Defaults]),
    key("on_share_exhausted", Extension, &[RateLimit, Defaults]),
    key("on_store_error", Extension, &[RateLimit, Defaults]),
    key("degraded_limit", Extension, &[RateLimit]),
    key("inherit", Extension, &[RateLimit]),
    key("ban", Extension, &[RateLimit]),
    key("notify", Extension, &[RateLimit]),
    key("enforce_percent", Extension, &[RateLimit]),
    key("candidate", Extension, &[RateLimit]),
    key("threshold", Extension, &[Ban]),
    key("interval", Extension, &[Ban]),
    key("duration", Extension, &[Ban]),
    key("max_duration", Extension, &[Ban]),
    key("forgive", Extension, &[Ban]),
    key("list_after", Extension, &[Ban]),
    key("mode", Extension, &[Ban]),
    key("retry_after_spread", Extension, &[RateLimit, Defaults]),
    key("load_shedding", Extension, &[Descriptor]),
    key("target", Extension, &[LoadShedding]),
    key("half_life", Extension, &[LoadShedding]),
    key("floor", Extension, &[LoadShedding]),
    key("priority_key", Extension, &[LoadShedding]),
    key("stale_after", Extension, &[LoadShedding]),
    key("debt", Extension, &[Carry]),
    key("unused", Extension, &[Carry]),
];

/// Maximum length in bytes of a word that is compared with others: the comparison takes time for the product of the
/// lengths.
const MAX_COMPARED_BYTES: usize = 64;

impl Section {
    /// All sections, in the order in which a key is suggested.
    pub(super) const ALL: [Self; 10] = [
        Self::Descriptor,
        Self::RateLimit,
        Self::File,
        Self::Replaces,
        Self::Defaults,
        Self::Ban,
        Self::LoadShedding,
        Self::Candidate,
        Self::Carry,
        Self::Reserve,
    ];

    /// Keys of the section.
    pub(super) fn keys(self) -> impl Iterator<Item = &'static str> {
        KEYS.iter().filter(move |key| key.sections.contains(&self)).map(|key| key.name)
    }

    /// Name of the section in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::File => "the root of a file",
            Self::Defaults => "`defaults`",
            Self::Descriptor => "a descriptor",
            Self::RateLimit => "`rate_limit`",
            Self::Replaces => "an element of `replaces`",
            Self::Ban => "`ban`",
            Self::LoadShedding => "`load_shedding`",
            Self::Candidate => "`candidate`",
            Self::Carry => "`carry`",
            Self::Reserve => "`reserve`",
        }
    }

    /// Status of the key `name` in the section.
    pub(super) fn status_of(self, name: &str) -> KeyStatus {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return KeyStatus::Unknown(nearest(name, self.keys()));
        };
        match key.sections {
            sections if sections.contains(&self) => KeyStatus::Known,
            // envoyproxy/ratelimit has no `defaults`, so no file relies on an ignored key there.
            [home, ..] if key.language == Reference && !matches!(self, Defaults | Candidate) => {
                KeyStatus::Ignored(*home)
            }
            [home, ..] => KeyStatus::Misplaced(*home),
            [] => KeyStatus::Unknown(None),
        }
    }
}

/// Names of all keys.
pub(super) fn all_keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name)
}

/// Whether the language of envoyproxy/ratelimit has the key.
pub fn is_of_reference(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name && key.language == Reference)
}

/// The most similar of `words`, if `word` is likely a misspelling of it.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let plain = |word: &str| word.to_lowercase().replace(['_', '-', ' '], "");
    let meant = plain(word);
    let compared = words.into_iter().map(|known| (strsim::osa_distance(&meant, &plain(known)), known));
    // Three letters may be missing at the end, but not be others.
    let most = |known: &str| if plain(known).starts_with(&meant) { 3 } else { 2 };
    let near = compared.filter(|(distance, known)| *distance <= known.len().div_ceil(4).min(most(known)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_have_a_suggestion() {
        for (typo, meant) in [
            ("requestsperunit", "requests_per_unit"),
            ("request_per_unit", "requests_per_unit"),
            ("Unit", "unit"),
            ("brust", "burst"),
        ] {
            assert_eq!(RateLimit.status_of(typo), KeyStatus::Unknown(Some(meant)), "{typo}");
        }
        assert_eq!(Descriptor.status_of("ratelimit"), KeyStatus::Unknown(Some("rate_limit")));
        assert_eq!(Descriptor.status_of("shadowMode"), KeyStatus::Unknown(Some("shadow_mode")));
        assert_eq!(File.status_of("comment"), KeyStatus::Unknown(None));
        assert_eq!(Descriptor.status_of("description"), KeyStatus::Unknown(None));
        assert_eq!(RateLimit.status_of("descriptor"), KeyStatus::Unknown(None), "not allowed there");
    }

    #[test]
    fn misplaced_keys_have_the_right_section() {
        assert_eq!(RateLimit.status_of("shadow_mode"), KeyStatus::Ignored(Descriptor));
        assert_eq!(File.status_of("unit"), KeyStatus::Ignored(RateLimit));
        assert_eq!(Descriptor.status_of("burst"), KeyStatus::Misplaced(RateLimit));
        assert_eq!(Descriptor.status_of("atomic"), KeyStatus::Misplaced(File));
        assert_eq!(Defaults.status_of("unlimited"), KeyStatus::Misplaced(RateLimit));
        assert_eq!(Descriptor.status_of("on_store_error"), KeyStatus::Misplaced(RateLimit));
    }

    #[test]
    fn keys_are_unique_and_have_a_section() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(!key.sections.is_empty(), "{}", key.name);
            assert!(KEYS.iter().skip(at + 1).all(|other| other.name != key.name), "{}", key.name);
        }
    }
}
