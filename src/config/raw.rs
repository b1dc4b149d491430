//! What the user wrote: the shape of a file, nothing of its meaning.
//!
//! [`reader`](super::reader) fills these from YAML, and [`compile`](super::compile) makes rules of them.

use std::rc::Rc;

use super::yaml::{Node, Position};

/// A value that a key may state.
#[derive(Clone, Debug, Default)]
pub(super) enum Field<T> {
    /// The key is not there, or null.
    #[default]
    Absent,
    /// The key is there with a value that was reported as wrong.
    Wrong,
    /// The key states a value.
    Stated(Stated<T>),
}

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stated<T> {
    pub(super) at: Position,
    pub(super) value: T,
}

impl<T> Field<T> {
    /// The value, where one that is right is stated.
    pub(super) const fn stated(&self) -> Option<&Stated<T>> {
        match self {
            Self::Stated(stated) => Some(stated),
            Self::Absent | Self::Wrong => None,
        }
    }

    /// Whether the key is there, with any value.
    pub(super) const fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }
}

impl<T: Copy + Default> Field<T> {
    /// The value, or the type's default.
    pub(super) fn or_default(&self) -> T {
        self.stated().map(|stated| stated.value).unwrap_or_default()
    }
}

impl Field<Rc<str>> {
    /// The text, or the empty one.
    pub(super) fn text(&self) -> &str {
        self.stated().map_or("", |stated| &*stated.value)
    }
}

/// A file.
#[derive(Debug)]
pub(super) struct RawFile {
    /// Its name, relative to the configuration's directory.
    pub(super) name: Rc<str>,
    pub(super) domain: Field<Rc<str>>,
    pub(super) hash_tag: Field<Vec<Stated<Rc<str>>>>,
    pub(super) atomic: Field<bool>,
    pub(super) defaults: RawRateLimit,
    pub(super) descriptors: Vec<RawDescriptor>,
}

/// An element of `descriptors`.
#[derive(Debug)]
pub(super) struct RawDescriptor {
    /// Where it begins.
    pub(super) at: Position,
    /// Its index in the file's list, in which broken elements count too.
    pub(super) index: usize,
    pub(super) key: Field<Rc<str>>,
    pub(super) value: Field<Rc<str>>,
    pub(super) regex: Field<Rc<str>>,
    pub(super) cidr: Field<Rc<str>>,
    pub(super) rate_limit: Field<RawRateLimit>,
    pub(super) descriptors: Vec<RawDescriptor>,
    pub(super) shadow_mode: Field<bool>,
    pub(super) quota_mode: Field<bool>,
    pub(super) detailed_metric: Field<bool>,
    pub(super) value_to_metric: Field<bool>,
    pub(super) share_threshold: Field<bool>,
    pub(super) metadata: Field<Node>,
}

impl RawDescriptor {
    pub(super) const fn new(at: Position, index: usize) -> Self {
        Self {
            at,
            index,
            key: Field::Absent,
            value: Field::Absent,
            regex: Field::Absent,
            cidr: Field::Absent,
            rate_limit: Field::Absent,
            descriptors: Vec::new(),
            shadow_mode: Field::Absent,
            quota_mode: Field::Absent,
            detailed_metric: Field::Absent,
            value_to_metric: Field::Absent,
            share_threshold: Field::Absent,
            metadata: Field::Absent,
        }
    }
}

/// The mapping under `rate_limit`, or the one under `defaults`.
#[derive(Debug, Default)]
pub(super) struct RawRateLimit {
    pub(super) unit: Field<Rc<str>>,
    pub(super) unit_multiplier: Field<u32>,
    pub(super) window: Field<Rc<str>>,
    pub(super) requests_per_unit: Field<u32>,
    pub(super) unlimited: Field<bool>,
    pub(super) algorithm: Field<Rc<str>>,
    pub(super) burst: Field<u32>,
    pub(super) min_interval: Field<Rc<str>>,
    pub(super) lease_ttl: Field<Rc<str>>,
    pub(super) sync: Field<Rc<str>>,
    pub(super) on_store_error: Field<Rc<str>>,
    pub(super) name: Field<Rc<str>>,
    pub(super) replaces: Vec<RawReplaces>,
}

/// An element of `replaces`.
#[derive(Debug)]
pub(super) struct RawReplaces {
    /// Where it begins.
    pub(super) at: Position,
    /// Its index in the list.
    pub(super) index: usize,
    pub(super) name: Field<Rc<str>>,
}
