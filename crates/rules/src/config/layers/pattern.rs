//! Patterns of an overlay: a tree of keys and values with `*`.

use super::{KEYS_OF_LIMITS, OTHER_KEYS};
use crate::{
    Wildcard,
    config::{raw::RawDescriptor, vocabulary::Mapping as _},
};

/// Key that stands for any number of levels.
const ANY_DEPTH: &str = "**";

/// A descriptor of an overlay.
#[derive(Debug)]
pub(super) struct DescriptorPattern<'a> {
    pub(super) raw: &'a RawDescriptor,
    /// Index among the descriptors of the file.
    pub(super) index: usize,
    /// Path in the file, for problems.
    pub(super) path: String,
    /// The key; `None` for any number of levels.
    key: Option<TextPattern<'a>>,
    /// The value; `None` for any value or none.
    value: Option<TextPattern<'a>>,
    pub(super) children: Vec<Self>,
}

/// A text, or a pattern of texts.
#[derive(Debug)]
pub(super) enum TextPattern<'a> {
    Exact(&'a str),
    Wildcard(Wildcard),
}

impl<'a> TextPattern<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Wildcard::parse(text).map_or(Self::Exact(text), Self::Wildcard)
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => *exact == text,
            Self::Wildcard(wildcard) => wildcard.matches(text),
        }
    }
}

impl<'a> DescriptorPattern<'a> {
    /// The patterns of a list of descriptors; `count` is the number of those before them.
    pub(super) fn of_list(list: &'a [Box<RawDescriptor>], parent: &str, count: &mut usize) -> Vec<Self> {
        let each = list.iter().map(|raw| {
            let index = *count;
            *count = count.saturating_add(1);
            let path = match parent {
                "" => format!("descriptors[{}]", raw.index),
                parent => format!("{parent}.descriptors[{}]", raw.index),
            };
            let key = raw.key.text();
            let children = Self::of_list(&raw.descriptors, &path, count);
            Self {
                raw,
                index,
                path,
                key: (key != ANY_DEPTH).then(|| TextPattern::new(key)),
                value: raw.value.stated().map(|value| TextPattern::new(&value.value)),
                children,
            }
        });
        each.collect()
    }

    /// Whether it stands for any number of levels.
    pub(super) const fn is_any_depth(&self) -> bool {
        self.key.is_none()
    }

    pub(super) fn matches(&self, descriptor: &RawDescriptor) -> bool {
        self.key.as_ref().is_none_or(|key| key.matches(descriptor.key.text()))
            && self.value.as_ref().is_none_or(|value| value.matches(descriptor.value.text()))
    }

    /// Whether it has keys to lay over the descriptors that it matches.
    pub(super) fn has_keys(&self) -> bool {
        let is_effective = |key: &str| KEYS_OF_LIMITS.contains(&key) || OTHER_KEYS.contains(&key);
        self.raw.is_limited() || self.raw.stated_keys().any(|(key, _)| is_effective(key))
    }
}
