//! Configuration as written: the shape of a file without its meaning.
//!
//! [`reader`](super::reader) fills these types from YAML, and [`compile`](super::compile) compiles them to rules.

use std::rc::Rc;

use tollgate_core::EnforcedShare;

use super::{
    problem::Path,
    reader::{ReadValue as _, Reader},
    yaml::{Node, Position},
};

/// Value of an optional key.
#[derive(Clone, Debug, Default)]
pub enum Field<T> {
    /// The key is absent or null.
    #[default]
    Absent,
    /// The value is invalid, and was reported.
    Invalid,
    /// The key has a value of the right type.
    Stated(Stated<T>),
}

/// Value with its position.
#[derive(Clone, Copy, Debug)]
pub struct Stated<T> {
    pub at: Position,
    pub value: T,
}

impl<T> Field<T> {
    /// The value with its position, if it is valid.
    pub const fn stated(&self) -> Option<&Stated<T>> {
        match self {
            Self::Stated(stated) => Some(stated),
            Self::Absent | Self::Invalid => None,
        }
    }

    /// Whether the key is present, with any value.
    pub const fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The field with the value that `change` gives, at the same position.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Field<U> {
        match self {
            Self::Absent => Field::Absent,
            Self::Invalid => Field::Invalid,
            Self::Stated(Stated { at, value }) => Field::Stated(Stated { at, value: change(value) }),
        }
    }
}

impl<T: Copy + Default> Field<T> {
    /// The value, or the type's default.
    pub fn or_default(&self) -> T {
        self.stated().map(|stated| stated.value).unwrap_or_default()
    }
}

impl Field<Rc<str>> {
    /// The text; empty if absent or invalid.
    pub fn text(&self) -> &str {
        self.stated().map_or("", |stated| &*stated.value)
    }
}

/// A configuration file.
#[derive(Debug)]
pub struct RawFile {
    /// The name, relative to the configuration's directory.
    pub name: Rc<str>,
    pub domain: Field<Rc<str>>,
    pub hash_tag: Field<Vec<Stated<Rc<str>>>>,
    pub atomic: Field<bool>,
    pub defaults: RawRateLimit,
    pub descriptors: RawDescriptors,
}

/// The list under `descriptors`. Each is freed as soon as it is compiled, unlike an element in the memory of a list.
#[allow(clippy::vec_box)]
pub type RawDescriptors = Vec<Box<RawDescriptor>>;

/// An element of `descriptors`.
#[derive(Debug)]
pub struct RawDescriptor {
    /// The position of its beginning.
    pub at: Position,
    /// The index in the file's list, in which invalid elements count too.
    pub index: usize,
    pub key: Field<Rc<str>>,
    pub value: Field<Rc<str>>,
    pub regex: Field<Rc<str>>,
    pub cidr: Field<Rc<str>>,
    pub rate_limit: Field<RawRateLimit>,
    pub rate_limits: Field<Vec<RawLimit>>,
    pub load_shedding: Field<RawShedding>,
    pub descriptors: RawDescriptors,
    pub shadow_mode: Field<bool>,
    pub quota_mode: Field<bool>,
    pub detailed_metric: Field<bool>,
    pub value_to_metric: Field<bool>,
    pub share_threshold: Field<bool>,
    pub metadata: Field<Node>,
    pub weight: Field<Node>,
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
            rate_limits: Field::Absent,
            load_shedding: Field::Absent,
            descriptors: Vec::new(),
            shadow_mode: Field::Absent,
            quota_mode: Field::Absent,
            detailed_metric: Field::Absent,
            value_to_metric: Field::Absent,
            share_threshold: Field::Absent,
            metadata: Field::Absent,
            weight: Field::Absent,
        }
    }

    /// Whether it has a limit, or several.
    pub(super) const fn is_limited(&self) -> bool {
        self.rate_limit.is_present() || self.rate_limits.is_present()
    }

    /// The flags, with their keys, and whether each needs a limit in the same descriptor.
    pub(super) const fn flags(&self) -> [(&'static str, &Field<bool>, bool); 5] {
        [
            ("shadow_mode", &self.shadow_mode, true),
            ("quota_mode", &self.quota_mode, true),
            ("detailed_metric", &self.detailed_metric, true),
            ("value_to_metric", &self.value_to_metric, false),
            ("share_threshold", &self.share_threshold, false),
        ]
    }

    /// The flags in the same order.
    pub(super) const fn flags_mut(&mut self) -> [&mut Field<bool>; 5] {
        [
            &mut self.shadow_mode,
            &mut self.quota_mode,
            &mut self.detailed_metric,
            &mut self.value_to_metric,
            &mut self.share_threshold,
        ]
    }
}

/// Defines [`RawRateLimit`] from its keys with a single value, each of which is read by its type.
macro_rules! raw_rate_limit {
    ($($key:ident: $value:ty,)*) => {
        /// The mapping under `rate_limit`, or the one under `defaults`.
        #[derive(Clone, Debug, Default)]
        pub struct RawRateLimit {
            $(pub $key: Field<$value>,)*
            pub replaces: Vec<RawReplaces>,
        }

        impl RawRateLimit {
            /// Reads the value of a key; others than those with a single value are ignored.
            pub(super) fn read_key(&mut self, key: &str, value: &Node, path: &Path<'_>, reader: &mut Reader<'_>) {
                match key {
                    $(stringify!($key) => self.$key = <$value>::read(value, path, reader),)*
                    _ => {}
                }
            }

            /// Fills each absent key that `takes` accepts with the value of `base`.
            pub(super) fn fill(&mut self, base: &Self, takes: impl Fn(&'static str) -> bool) {
                $(if !self.$key.is_present() && takes(stringify!($key)) {
                    self.$key = base.$key.clone();
                })*
                if self.replaces.is_empty() && takes("replaces") {
                    self.replaces.clone_from(&base.replaces);
                }
            }

            /// Keys with a valid single value, with their positions.
            pub(super) fn stated_keys(&self) -> impl Iterator<Item = (&'static str, Position)> {
                let positions = [
                    $((stringify!($key), self.$key.stated().map(|stated| stated.at)),)*
                ];
                positions.into_iter().filter_map(|(key, at)| Some((key, at?)))
            }
        }
    };
}

raw_rate_limit! {
    inherit: RawInherit,
    unit: Rc<str>,
    unit_multiplier: u32,
    window: Rc<str>,
    timezone: Rc<str>,
    anchor: Rc<str>,
    requests_per_unit: u64,
    unlimited: bool,
    algorithm: Rc<str>,
    burst: u32,
    min_interval: Rc<str>,
    lease_ttl: Rc<str>,
    overdraft: bool,
    max_debt: u32,
    carry: RawCarry,
    reserve: RawReserve,
    sync: Rc<str>,
    scope: Rc<str>,
    on_share_exhausted: Rc<str>,
    on_store_error: Rc<str>,
    degraded_limit: u32,
    ban: RawBan,
    notify: RawThresholds,
    enforce_percent: EnforcedShare,
    candidate: RawCandidate,
    retry_after_spread: Rc<str>,
    name: Rc<str>,
}

/// The limit whose keys a limit takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawInherit {
    /// No limit.
    No,
    /// The nearest one above.
    Above,
    /// The one with this name.
    Named(Rc<str>),
}

/// An element of `rate_limits`.
#[derive(Clone, Debug)]
pub struct RawLimit {
    /// The index in the list.
    pub index: usize,
    pub limit: Stated<RawRateLimit>,
}

/// The mapping under `candidate`.
#[derive(Clone, Debug)]
pub struct RawCandidate(pub Box<Stated<RawRateLimit>>);

/// The list under `notify`: whole percentages, each at least 1 and within the range of thresholds.
#[derive(Clone, Debug)]
pub struct RawThresholds(pub Vec<u16>);

/// The value of `carry`: whether it has a debt, or the mapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawCarry {
    pub debt: bool,
    /// The share of unused hits, in percent.
    pub unused: u8,
}

/// The mapping under `load_shedding`.
#[derive(Clone, Debug, Default)]
pub struct RawShedding {
    pub target: Field<Ratio>,
    pub half_life: Field<Rc<str>>,
    pub floor: Field<Ratio>,
    pub priority_key: Field<Rc<str>>,
    pub stale_after: Field<Rc<str>>,
}

/// A part of a whole, as a number or a percentage.
#[derive(Clone, Copy, Debug)]
pub struct Ratio(pub f64);

/// The mapping under `reserve`.
#[derive(Clone, Debug, Default)]
pub struct RawReserve {
    pub ttl: Field<Rc<str>>,
    pub unsettled: Field<Rc<str>>,
    pub add: Field<u32>,
    pub cap: Field<Ratio>,
}

/// The mapping under `ban`.
#[derive(Clone, Debug, Default)]
pub struct RawBan {
    pub threshold: Field<u32>,
    pub interval: Field<Rc<str>>,
    pub duration: Field<Rc<str>>,
    pub max_duration: Field<Rc<str>>,
    pub forgive: Field<Rc<str>>,
    pub list_after: Field<u32>,
    pub mode: Field<Rc<str>>,
}

/// An element of `replaces`.
#[derive(Clone, Debug)]
pub struct RawReplaces {
    /// The position of its beginning.
    pub at: Position,
    /// The index in the list.
    pub index: usize,
    pub name: Field<Rc<str>>,
}
