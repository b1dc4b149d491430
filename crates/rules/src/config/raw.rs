//! Configuration as written: the shape of a file without its meaning, and all keys of the language.
//!
//! [`reader`](super::reader) fills these types from YAML, and [`compile`](super::compile) compiles them to rules.

use std::rc::Rc;

use tollgate_core::algorithm::{Algorithm, Unsettled};
use tollgate_core::{EnforcedShare, SyncMode, ban::BanMode};

use super::problem::Path;
use super::reader::{KeyValue, Reader};
use super::vocabulary::Shape::{Duration, RequiredText, Unit, Words};
use super::vocabulary::{Key, Language, Mapping, Presence, Section, keys, words};
use super::yaml::{Node, Position};
use crate::{OnShareExhausted, OnStoreError, Scope};

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

impl<T> Stated<T> {
    /// A value that no line of a file states.
    pub const fn whole(value: T) -> Self {
        Self { at: Position::WHOLE, value }
    }
}

impl<T> Field<T> {
    /// The value with its position, if it is valid.
    pub const fn stated(&self) -> Option<&Stated<T>> {
        if let Self::Stated(stated) = self { Some(stated) } else { None }
    }

    /// The position of the value, if it is valid.
    pub fn at(&self) -> Option<Position> {
        self.stated().map(|stated| stated.at)
    }

    /// The value if the key has one; the outer `None` if it is invalid, and was reported.
    pub const fn valid(&self) -> Option<Option<&Stated<T>>> {
        match self {
            Self::Absent => Some(None),
            Self::Invalid => None,
            Self::Stated(stated) => Some(Some(stated)),
        }
    }

    /// The value as `read` has it, or the default; `None` if it is invalid.
    pub fn read_or<U>(&self, default: U, read: impl FnOnce(&Stated<T>) -> Option<U>) -> Option<U> {
        self.valid()?.map_or(Some(default), read)
    }

    /// The value with its position, if it is valid.
    pub fn into_stated(self) -> Option<Stated<T>> {
        if let Self::Stated(stated) = self { Some(stated) } else { None }
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

keys! {
    /// A configuration file.
    #[derive(Clone, Debug, Default)]
    pub struct RawFile in File {
        {
            /// The name, relative to the configuration's directory.
            pub name: Rc<str>,
        }

        /// Domain of the requests that the file applies to.
        Reference domain: Field<Rc<str>> as RequiredText;
        /// Descriptors, or those of the next entry.
        Reference descriptors: RawDescriptors;
        /// Keys of the limits of this file that do not state them.
        Extension defaults: RawRateLimit;
        /// Keys whose entries share a shard of Redis Cluster.
        Extension hash_tag: Field<Vec<Stated<Rc<str>>>>;
        /// Whether a request is charged to all of its limits or to none.
        Extension atomic: Field<bool>;
    }
}

/// The list under `descriptors`. Each is freed as soon as it is compiled, unlike an element in the memory of a list.
#[allow(clippy::vec_box)]
pub type RawDescriptors = Vec<Box<RawDescriptor>>;

keys! {
    /// An element of `descriptors`.
    #[derive(Clone, Debug, Default)]
    pub struct RawDescriptor in Descriptor {
        {
            /// The position of its beginning.
            pub at: Position,
            /// The index in the file's list, in which invalid elements count too.
            pub index: usize,
        }

        /// Key of a descriptor's entry; `*` at its end matches any rest.
        Reference key: Field<Rc<str>> as RequiredText;
        /// Value of the entry, or a pattern with `*`. Without it, each value has a counter of its own.
        Reference value: Field<Rc<str>>;
        /// Regular expression that the whole value matches.
        Extension regex: Field<Rc<str>>;
        /// Range of addresses that contains the value, such as 10.0.0.0/8.
        Extension cidr: Field<Rc<str>>;
        /// Limit of requests with this descriptor.
        Reference rate_limit: Field<RawRateLimit>;
        /// Several limits of requests with this descriptor: all are charged, or none.
        Extension rate_limits: Field<Vec<RawLimit>>;
        /// Descriptors, or those of the next entry.
        Reference descriptors: RawDescriptors;
        /// Whether the limit is counted but denies nothing.
        Reference shadow_mode: Field<bool>;
        /// Whether requests pass as long as any of the quotas has some left.
        Reference quota_mode: Field<bool>;
        /// Whether metrics have the value of each key of the descriptor.
        Reference detailed_metric: Field<bool>;
        /// Whether metrics have the value of this key.
        Reference value_to_metric: Field<bool>;
        /// Whether all values that match the pattern share a counter.
        Reference share_threshold: Field<bool>;
        /// Metadata of responses that this descriptor decides.
        Reference metadata: Field<Node>;
        /// Hits that a hit of a value counts as, by value.
        Extension weight: Field<Node>;
        /// Sheds load of a service by the utilization that it reports.
        Extension load_shedding: Field<RawShedding>;
    }
}

impl RawDescriptor {
    /// Whether it has a limit, or several.
    pub(super) const fn is_limited(&self) -> bool {
        self.rate_limit.is_present() || self.rate_limits.is_present()
    }
}

keys! {
    /// The mapping under `rate_limit`, or the one under `defaults` or `candidate`.
    #[derive(Clone, Debug, Default)]
    pub struct RawRateLimit in RateLimit {
        /// Window of the limit; several of them by `unit_multiplier`.
        Reference unit: Field<Rc<str>> as Unit, Defaults, Candidate;
        /// Requests admitted in a window.
        Reference requests_per_unit: Field<u64>, Defaults, Candidate;
        /// Whether requests pass without being counted.
        Reference unlimited: Field<bool>;
        /// Name of the limit, by which others replace it.
        Reference name: Field<Rc<str>>;
        /// Limits that do not apply to a request where this one does.
        Reference replaces: Vec<RawReplaces>;
        /// Algorithm of the limit; a fixed window by default.
        Extension algorithm: Field<Rc<str>> as Words(words::<Algorithm>), Defaults, Candidate;
        /// Capacity of a token bucket, or its burst beyond the rate.
        Extension burst: Field<u32>, Defaults, Candidate;
        /// Least time between two requests of a sliding window log.
        Extension min_interval: Field<Rc<str>>, Defaults, Candidate;
        /// Time after which a permit of a concurrency limit expires.
        Extension lease_ttl: Field<Rc<str>>, Defaults;
        /// Whether a request may exceed what is left, which later ones make up for.
        Extension overdraft: Field<bool>, Defaults, Candidate;
        /// Hits by which an overdraft may exceed the limit.
        Extension max_debt: Field<u32>, Defaults, Candidate;
        #[doc = "What the next window gets of this one: its overdraft, a share of its unused hits."]
        Extension carry: Field<RawCarry>, Defaults, Candidate;
        /// Reserves hits until the response shows how many were used.
        Extension reserve: Field<RawReserve>;
        /// Window of the limit, in place of `unit`, such as 30s or 1h30m.
        Extension window: Field<Rc<str>> as Duration, Defaults, Candidate;
        /// Number of units in a window.
        Extension unit_multiplier: Field<u32>, Defaults, Candidate;
        /// Time zone of a window that follows the calendar, such as Europe/Berlin.
        Extension timezone: Field<Rc<str>>, Candidate;
        /// Day on which a window of a calendar begins: of the month, of the week, or of the year.
        Extension anchor: Field<Rc<str>>, Candidate;
        /// Whether instances lease parts of the limit in place of a call per request.
        Extension sync: Field<Rc<str>> as Words(words::<SyncMode>), Defaults;
        /// Whether regions share the limit.
        Extension scope: Field<Rc<str>> as Words(words::<Scope>), Defaults;
        /// Decision of a hit that the region's share denies: `deny`, or `wait` for a loan from other regions.
        Extension on_share_exhausted: Field<Rc<str>> as Words(words::<OnShareExhausted>), Defaults;
        /// Decision while Redis does not respond.
        Extension on_store_error: Field<Rc<str>> as Words(words::<OnStoreError>), Defaults;
        /// Requests per window and instance while Redis does not respond.
        Extension degraded_limit: Field<u32>;
        /// Takes absent keys from the nearest limit above (true), or from the limit with this name.
        Extension inherit: Field<RawInherit>;
        /// Ban of a client that continues while it is denied.
        Extension ban: Field<RawBan>;
        /// Shares of the limit of whose use operators are notified.
        Extension notify: Field<Vec<u16>>;
        /// Part of the keys that the limit is enforced for; others are shadowed.
        Extension enforce_percent: Field<EnforcedShare>;
        /// Another limit, counted beside this one and compared with it.
        Extension candidate: Field<Box<Stated<RawRateLimit>>>;
        /// Longest random time that is added to `Retry-After`.
        Extension retry_after_spread: Field<Rc<str>> as Duration, Defaults;
    }
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

/// The value of `carry`: whether it has a debt, or the mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawCarry {
    pub debt: bool,
    /// The share of unused hits, in percent.
    pub unused: u8,
}

keys! {
    /// The mapping under `carry`.
    #[derive(Debug, Default)]
    pub struct RawCarryKeys in Carry {
        /// Whether an overdraft is carried to the next window.
        Extension debt: Field<bool>;
        /// Share of the unused hits that raises the next window.
        Extension unused: Field<u8>;
    }
}

keys! {
    /// The mapping under `load_shedding`.
    #[derive(Clone, Debug, Default)]
    pub struct RawShedding in LoadShedding {
        /// Utilization to aim at, such as 80%.
        Extension target: Field<f64>;
        /// Time in which the weight of a report halves.
        Extension half_life: Field<Rc<str>> as Duration;
        /// Least part of requests that pass.
        Extension floor: Field<f64>;
        /// Key whose value is the priority of a request.
        Extension priority_key: Field<Rc<str>>;
        /// Time after which a report does not count.
        Extension stale_after: Field<Rc<str>> as Duration;
    }
}

keys! {
    /// The mapping under `reserve`.
    #[derive(Clone, Debug, Default)]
    pub struct RawReserve in Reserve {
        /// Time after which a reservation that was not settled ends.
        Extension ttl: Field<Rc<str>> as Duration;
        /// Effect of a reservation that was not settled: its hits count as used, or return.
        Extension unsettled: Field<Rc<str>> as Words(words::<Unsettled>);
        /// Hits that are reserved beyond those of the request.
        Extension add: Field<u32>;
        /// Largest part of the limit that one reservation takes.
        Extension cap: Field<f64>;
    }
}

keys! {
    /// The mapping under `ban`.
    #[derive(Clone, Debug, Default)]
    pub struct RawBan in Ban {
        /// Denied requests that lead to a ban.
        Extension threshold: Field<u32>;
        /// Time within which they are counted.
        Extension interval: Field<Rc<str>> as Duration;
        /// Length of the first ban.
        Extension duration: Field<Rc<str>> as Duration;
        /// Longest ban; each next one is twice as long.
        Extension max_duration: Field<Rc<str>> as Duration;
        /// Time after which earlier ones do not count.
        Extension forgive: Field<Rc<str>> as Duration;
        /// Longest bans in a row after which the client is listed until the end of the last one.
        Extension list_after: Field<u32>;
        /// Whether bans are enforced or only counted.
        Extension mode: Field<Rc<str>> as Words(words::<BanMode>);
    }
}

keys! {
    /// An element of `replaces`.
    #[derive(Clone, Debug, Default)]
    pub struct RawReplaces in Replaces {
        {
            /// The position of its beginning.
            pub at: Position,
            /// The index in the list.
            pub index: usize,
        }

        /// Name of a limit that does not apply where this one does.
        Reference name: Field<Rc<str>> as RequiredText;
    }
}
