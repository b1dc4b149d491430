//! What the user wrote: the shape of a file, nothing of its meaning.
//!
//! [`reader`](super::reader) fills these from YAML, and [`compile`](super::compile) makes rules of them.

use std::rc::Rc;

use super::yaml::{Node, Position};

/// A value that a key may state.
#[derive(Clone, Debug, Default)]
pub enum Field<T> {
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
pub struct Stated<T> {
    pub at: Position,
    pub value: T,
}

impl<T> Field<T> {
    /// The value, where one that is right is stated.
    pub const fn stated(&self) -> Option<&Stated<T>> {
        match self {
            Self::Stated(stated) => Some(stated),
            Self::Absent | Self::Wrong => None,
        }
    }

    /// Whether the key is there, with any value.
    pub const fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }
}

impl<T: Copy + Default> Field<T> {
    /// The value, or the type's default.
    pub fn or_default(&self) -> T {
        self.stated().map(|stated| stated.value).unwrap_or_default()
    }
}

impl Field<Rc<str>> {
    /// The text, or the empty one.
    pub fn text(&self) -> &str {
        self.stated().map_or("", |stated| &*stated.value)
    }
}

/// A file.
#[derive(Debug)]
pub struct RawFile {
    /// Its name, relative to the configuration's directory.
    pub name: Rc<str>,
    pub domain: Field<Rc<str>>,
    pub hash_tag: Field<Vec<Stated<Rc<str>>>>,
    pub atomic: Field<bool>,
    pub defaults: RawRateLimit,
    pub descriptors: Vec<RawDescriptor>,
}

/// An element of `descriptors`.
#[derive(Debug)]
pub struct RawDescriptor {
    /// Where it begins.
    pub at: Position,
    /// Its index in the file's list, in which broken elements count too.
    pub index: usize,
    pub key: Field<Rc<str>>,
    pub value: Field<Rc<str>>,
    pub regex: Field<Rc<str>>,
    pub cidr: Field<Rc<str>>,
    pub rate_limit: Field<RawRateLimit>,
    pub descriptors: Vec<RawDescriptor>,
    pub shadow_mode: Field<bool>,
    pub quota_mode: Field<bool>,
    pub detailed_metric: Field<bool>,
    pub value_to_metric: Field<bool>,
    pub share_threshold: Field<bool>,
    pub metadata: Field<Node>,
}

impl RawDescriptor {
    pub const fn new(at: Position, index: usize) -> Self {
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
pub struct RawRateLimit {
    pub unit: Field<Rc<str>>,
    pub unit_multiplier: Field<u32>,
    pub window: Field<Rc<str>>,
    pub requests_per_unit: Field<u32>,
    pub unlimited: Field<bool>,
    pub algorithm: Field<Rc<str>>,
    pub burst: Field<u32>,
    pub min_interval: Field<Rc<str>>,
    pub lease_ttl: Field<Rc<str>>,
    pub sync: Field<Rc<str>>,
    pub on_store_error: Field<Rc<str>>,
    pub name: Field<Rc<str>>,
    pub replaces: Vec<RawReplaces>,
}

/// An element of `replaces`.
#[derive(Debug)]
pub struct RawReplaces {
    /// Where it begins.
    pub at: Position,
    /// Its index in the list.
    pub index: usize,
    pub name: Field<Rc<str>>,
}
