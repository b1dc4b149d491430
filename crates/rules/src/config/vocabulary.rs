//! Keys of the configuration language. Each is declared once, by [`keys`] in [`raw`](super::raw): the reader, the messages
//! about unknown keys and the JSON schema follow the declaration.

use std::borrow::Cow;

use tollgate_core::algorithm::{Algorithm, Unsettled};
use tollgate_core::{SyncMode, ban::BanMode, quota::Unit};

use super::raw::{
    RawBan, RawCarryKeys, RawDescriptor, RawFile, RawRateLimit, RawReplaces, RawReserve, RawShedding,
};
use super::yaml::{Node, Position};
use super::{problem::Path, reader::Reader};
use crate::{OnShareExhausted, OnStoreError, Scope};

tollgate_core::named! {
    /// Mapping of the language that has keys, in the order in which a key is suggested. The name is the one in the schema, and
    /// its key where it has one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Section {
        /// An element of `descriptors`.
        Descriptor = "descriptor",
        /// The mapping under `rate_limit`.
        RateLimit = "rate_limit",
        /// The root of a file.
        File = "file",
        /// An element of `replaces`.
        Replaces = "replaces",
        /// The mapping under `defaults`.
        Defaults = "defaults",
        /// The mapping under `ban`.
        Ban = "ban",
        /// The mapping under `load_shedding`.
        LoadShedding = "load_shedding",
        /// The mapping under `candidate`.
        Candidate = "candidate",
        /// The mapping under `carry`.
        Carry = "carry",
        /// The mapping under `reserve`.
        Reserve = "reserve",
    }
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
pub(super) enum Language {
    /// envoyproxy/ratelimit.
    Reference,
    /// tollgate only.
    Extension,
}

use Language::Reference;

/// Key of a mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) language: Language,
    /// Sections with this mapping that have the key.
    pub(super) sections: &'static [Section],
    pub(super) shape: Shape,
    /// Description for editors.
    pub(super) help: &'static str,
}

/// Values of a key, for the schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A text; numbers and bools are read as they are written.
    Text,
    /// A text that is not empty.
    RequiredText,
    /// A list of texts.
    Texts,
    /// A whole number of 32 bits.
    Number,
    /// A whole number of hits, of 53 bits.
    Hits,
    /// A list of whole percentages.
    Percentages,
    /// True or false.
    Flag,
    /// A part of a whole, 0 to 1 or a percentage.
    Ratio,
    /// A percentage, 0 to 100.
    Percent,
    /// A duration such as 1h30m.
    Duration,
    /// A unit of time, in any case.
    Unit,
    /// One of some words.
    Words(fn() -> Vec<&'static str>),
    /// A mapping of any content.
    Mapping,
    /// A mapping with keys of the language.
    Section(Section),
    /// Such a mapping, or true or false.
    FlagOrSection(Section),
    /// A list of such mappings.
    Sections(Section),
}

/// Mapping whose keys [`keys`] declares.
pub(super) trait Mapping {
    /// The keys, in the order of messages.
    const KEYS: &'static [Key];

    /// Reads the value of a key.
    fn read_key(&mut self, key: &str, value: &Node, path: &Path<'_>, reader: &mut Reader<'_>);

    /// Takes the value of each key of `from` for which `takes` returns true, given its name and whether it is present here
    /// and there.
    fn copy_keys(&mut self, from: &Self, takes: impl FnMut(&'static str, Presence) -> bool);

    /// The keys with a valid value, and their positions.
    fn stated_keys(&self) -> impl Iterator<Item = (&'static str, Position)>;

    /// The position of the value of a key, if it is valid.
    fn at(&self, key: &str) -> Option<Position> {
        self.stated_keys().find(|(name, _)| *name == key).map(|(_, at)| at)
    }
}

/// Whether a key is present in two mappings, with any value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Presence {
    pub(super) here: bool,
    pub(super) there: bool,
}

/// Defines the struct of a mapping by its keys. Of each the documentation is the description for editors, the word before it
/// the language that has it, the shape behind `as` the one for the schema where the type allows more, and behind the comma
/// are further sections that have it. Fields in braces are no keys.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        pub struct $name:ident in $section:ident {
            $({ $($(#[$extra_meta:meta])* pub $extra:ident: $extra_type:ty,)+ })?
            $($(#[doc = $help:literal])+ $language:ident $key:ident: $type:ty $(as $shape:expr)? $(, $also:ident)*;)+
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($($(#[$extra_meta])* pub $extra: $extra_type,)+)?
            $($(#[doc = $help])+ pub $key: $type,)+
        }

        impl Mapping for $name {
            const KEYS: &'static [Key] = &[$(Key {
                name: stringify!($key),
                language: Language::$language,
                sections: &[Section::$section, $(Section::$also),*],
                shape: {
                    let [shape, ..] = [$($shape,)? <$type as KeyValue>::SHAPE];
                    shape
                },
                help: concat!($($help),+).trim_ascii(),
            }),+];

            fn read_key(&mut self, key: &str, value: &Node, path: &Path<'_>, reader: &mut Reader<'_>) {
                match key {
                    $(stringify!($key) => self.$key = KeyValue::read(value, path, reader),)+
                    _ => {}
                }
            }

            fn copy_keys(&mut self, from: &Self, mut takes: impl FnMut(&'static str, Presence) -> bool) {
                $({
                    let presence = Presence { here: self.$key.is_present(), there: from.$key.is_present() };
                    if takes(stringify!($key), presence) {
                        self.$key.clone_from(&from.$key);
                    }
                })+
            }

            fn stated_keys(&self) -> impl Iterator<Item = (&'static str, Position)> {
                let positions = [$((stringify!($key), KeyValue::at(&self.$key))),+];
                positions.into_iter().filter_map(|(key, at)| Some((key, at?)))
            }
        }
    };
}
pub(super) use keys;

/// Values that are words.
pub(super) trait Word: Copy + 'static {
    /// Noun of such a value in messages.
    const NOUN: &'static str;

    /// All values by their words.
    fn named() -> Vec<(&'static str, Self)>;
}

macro_rules! words {
    ($($type:ty: $noun:literal,)+) => {
        $(impl Word for $type {
            const NOUN: &'static str = $noun;

            fn named() -> Vec<(&'static str, Self)> {
                Self::ALL.map(|value| (value.name(), value)).to_vec()
            }
        })+
    };
}

words! {
    Algorithm: "an algorithm",
    SyncMode: "a sync mode",
    OnStoreError: "an on_store_error policy",
    Scope: "a scope",
    OnShareExhausted: "a decision",
    BanMode: "a mode of bans",
    Unsettled: "an effect",
    Unit: "a unit",
}

/// The words of a type of values.
pub(super) fn words<W: Word>() -> Vec<&'static str> {
    W::named().into_iter().map(|(name, _)| name).collect()
}

/// Maximum length in bytes of a word that is compared with others: the comparison takes time for the product of the
/// lengths.
const MAX_COMPARED_BYTES: usize = 64;

impl Section {
    /// Keys of the section.
    pub(super) fn keys(self) -> impl Iterator<Item = &'static Key> {
        let keys = match self {
            Self::File => RawFile::KEYS,
            Self::Descriptor => RawDescriptor::KEYS,
            Self::RateLimit | Self::Defaults | Self::Candidate => RawRateLimit::KEYS,
            Self::Replaces => RawReplaces::KEYS,
            Self::Ban => RawBan::KEYS,
            Self::LoadShedding => RawShedding::KEYS,
            Self::Carry => RawCarryKeys::KEYS,
            Self::Reserve => RawReserve::KEYS,
        };
        keys.iter().filter(move |key| key.sections.contains(&self))
    }

    fn key(self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// Name of the section in messages.
    pub(super) fn label(self) -> Cow<'static, str> {
        match self {
            Self::File => "the root of a file".into(),
            Self::Descriptor => "a descriptor".into(),
            Self::Replaces => "an element of `replaces`".into(),
            section => format!("`{}`", section.name()).into(),
        }
    }

    /// Status of the key `name` in the section. A misplaced key belongs to the first section that has it.
    pub(super) fn status_of(self, name: &str) -> KeyStatus {
        if self.key(name).is_some() {
            return KeyStatus::Known;
        }
        let home = Self::ALL.into_iter().find_map(|section| Some((section, section.key(name)?.language)));
        match home {
            // envoyproxy/ratelimit has no `defaults`, so no file relies on an ignored key there.
            Some((home, Reference)) if !matches!(self, Self::Defaults | Self::Candidate) => {
                KeyStatus::Ignored(home)
            }
            Some((home, _)) => KeyStatus::Misplaced(home),
            None => KeyStatus::Unknown(nearest(name, self.keys().map(|key| key.name))),
        }
    }
}

/// Whether the language of envoyproxy/ratelimit has the key.
pub fn is_of_reference(name: &str) -> bool {
    Section::ALL.into_iter().any(|section| section.key(name).is_some_and(|key| key.language == Reference))
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
    use super::Section::{Defaults, Descriptor, File, RateLimit};
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
    fn keys_are_unique_in_a_section_and_have_a_description() {
        for section in Section::ALL {
            let names: Vec<_> = section.keys().map(|key| key.name).collect();
            assert!(!names.is_empty(), "{}", section.label());
            assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1));
            assert!(section.keys().all(|key| key.help.ends_with('.')), "{}", section.label());
        }
    }
}
