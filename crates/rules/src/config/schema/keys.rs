//! Values and descriptions of the keys.

use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Unsettled},
    ban::BanMode,
};

use crate::{
    OnShareExhausted, OnStoreError, Scope,
    config::vocabulary::Section::{
        self, Ban, Candidate, Carry, Descriptor, LoadShedding, RateLimit, Replaces, Reserve,
    },
};

/// Values of a key.
#[derive(Clone, Copy)]
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

/// The schema of a key.
pub(super) struct KeySchema {
    name: &'static str,
    /// The section, if the key differs between sections.
    section: Option<Section>,
    pub(super) shape: Shape,
    pub(super) description: &'static str,
}

const fn key(name: &'static str, shape: Shape, description: &'static str) -> KeySchema {
    KeySchema { name, section: None, shape, description }
}

const fn key_in(section: Section, name: &'static str, shape: Shape, description: &'static str) -> KeySchema {
    KeySchema { name, section: Some(section), shape, description }
}

/// Returns the schema of a key in a section.
pub(super) fn key_schema(section: Section, name: &str) -> Option<&'static KeySchema> {
    let is_of = |key: &&KeySchema| key.name == name && key.section.is_none_or(|of| of == section);
    KEYS.iter().find(is_of)
}

fn algorithms() -> Vec<&'static str> {
    Algorithm::ALL.map(Algorithm::name).to_vec()
}

fn sync_modes() -> Vec<&'static str> {
    SyncMode::ALL.map(SyncMode::name).to_vec()
}

fn store_error_policies() -> Vec<&'static str> {
    OnStoreError::ALL.map(OnStoreError::name).to_vec()
}

fn scopes() -> Vec<&'static str> {
    Scope::ALL.map(Scope::name).to_vec()
}

fn share_exhaustion_policies() -> Vec<&'static str> {
    OnShareExhausted::ALL.map(OnShareExhausted::name).to_vec()
}

fn unsettled_effects() -> Vec<&'static str> {
    Unsettled::ALL.map(Unsettled::name).to_vec()
}

fn ban_modes() -> Vec<&'static str> {
    BanMode::ALL.map(BanMode::name).to_vec()
}

use Shape::{
    Duration, Flag, FlagOrSection, Hits, Mapping, Number, Percent, Percentages, Ratio, RequiredText,
    Sections, Text, Texts, Unit, Words,
};

const KEYS: &[KeySchema] = &[
    key("domain", RequiredText, "Domain of the requests that the file applies to."),
    key("key", RequiredText, "Key of a descriptor's entry; `*` at its end matches any rest."),
    key(
        "value",
        Text,
        "Value of the entry, or a pattern with `*`. Without it, each value has a counter of its own.",
    ),
    key("regex", Text, "Regular expression that the whole value matches."),
    key("cidr", Text, "Range of addresses that contains the value, such as 10.0.0.0/8."),
    key("rate_limit", Shape::Section(RateLimit), "Limit of requests with this descriptor."),
    key(
        "rate_limits",
        Sections(RateLimit),
        "Several limits of requests with this descriptor: all are charged, or none.",
    ),
    key("descriptors", Sections(Descriptor), "Descriptors, or those of the next entry."),
    key(
        "defaults",
        Shape::Section(Section::Defaults),
        "Keys of the limits of this file that do not state them.",
    ),
    key("hash_tag", Texts, "Keys whose entries share a shard of Redis Cluster."),
    key("atomic", Flag, "Whether a request is charged to all of its limits or to none."),
    key("shadow_mode", Flag, "Whether the limit is counted but denies nothing."),
    key("quota_mode", Flag, "Whether requests pass as long as any of the quotas has some left."),
    key("detailed_metric", Flag, "Whether metrics have the value of each key of the descriptor."),
    key("value_to_metric", Flag, "Whether metrics have the value of this key."),
    key("share_threshold", Flag, "Whether all values that match the pattern share a counter."),
    key("metadata", Mapping, "Metadata of responses that this descriptor decides."),
    key("weight", Mapping, "Hits that a hit of a value counts as, by value."),
    key("unit", Unit, "Window of the limit; several of them by `unit_multiplier`."),
    key("requests_per_unit", Hits, "Requests admitted in a window."),
    key("unlimited", Flag, "Whether requests pass without being counted."),
    key_in(RateLimit, "name", Text, "Name of the limit, by which others replace it."),
    key_in(Replaces, "name", RequiredText, "Name of a limit that does not apply where this one does."),
    key("replaces", Sections(Replaces), "Limits that do not apply to a request where this one does."),
    key("algorithm", Words(algorithms), "Algorithm of the limit; a fixed window by default."),
    key("burst", Number, "Capacity of a token bucket, or its burst beyond the rate."),
    key("min_interval", Text, "Least time between two requests of a sliding window log."),
    key("lease_ttl", Text, "Time after which a permit of a concurrency limit expires."),
    key("overdraft", Flag, "Whether a request may exceed what is left, which later ones make up for."),
    key("max_debt", Number, "Hits by which an overdraft may exceed the limit."),
    key(
        "carry",
        FlagOrSection(Carry),
        "What the next window gets of this one: its overdraft, a share of its unused hits.",
    ),
    key("debt", Flag, "Whether an overdraft is carried to the next window."),
    key("unused", Ratio, "Share of the unused hits that raises the next window."),
    key("window", Duration, "Window of the limit, in place of `unit`, such as 30s or 1h30m."),
    key("timezone", Text, "Time zone of a window that follows the calendar, such as Europe/Berlin."),
    key(
        "anchor",
        Text,
        "Day on which a window of a calendar begins: of the month, of the week, or of the year.",
    ),
    key("unit_multiplier", Number, "Number of units in a window."),
    key(
        "sync",
        Words(sync_modes),
        "Whether instances lease parts of the limit in place of a call per request.",
    ),
    key("scope", Words(scopes), "Whether regions share the limit."),
    key(
        "on_share_exhausted",
        Words(share_exhaustion_policies),
        "Decision of a hit that the region's share denies: `deny`, or `wait` for a loan from other regions.",
    ),
    key("on_store_error", Words(store_error_policies), "Decision while Redis does not respond."),
    key("degraded_limit", Number, "Requests per window and instance while Redis does not respond."),
    key(
        "inherit",
        Text,
        "Takes absent keys from the nearest limit above (true), or from the limit with this name.",
    ),
    key("ban", Shape::Section(Ban), "Ban of a client that continues while it is denied."),
    key("reserve", Shape::Section(Reserve), "Reserves hits until the response shows how many were used."),
    key("ttl", Duration, "Time after which a reservation that was not settled ends."),
    key(
        "unsettled",
        Words(unsettled_effects),
        "Effect of a reservation that was not settled: its hits count as used, or return.",
    ),
    key("add", Number, "Hits that are reserved beyond those of the request."),
    key("cap", Ratio, "Largest part of the limit that one reservation takes."),
    key("notify", Percentages, "Shares of the limit of whose use operators are notified."),
    key("enforce_percent", Percent, "Part of the keys that the limit is enforced for; others are shadowed."),
    key(
        "candidate",
        Shape::Section(Candidate),
        "Another limit, counted beside this one and compared with it.",
    ),
    key("threshold", Number, "Denied requests that lead to a ban."),
    key("interval", Duration, "Time within which they are counted."),
    key("duration", Duration, "Length of the first ban."),
    key("max_duration", Duration, "Longest ban; each next one is twice as long."),
    key("forgive", Duration, "Time after which earlier ones do not count."),
    key(
        "list_after",
        Number,
        "Longest bans in a row after which the client is listed until the end of the last one.",
    ),
    key("mode", Words(ban_modes), "Whether bans are enforced or only counted."),
    key("retry_after_spread", Duration, "Longest random time that is added to `Retry-After`."),
    key(
        "load_shedding",
        Shape::Section(LoadShedding),
        "Sheds load of a service by the utilization that it reports.",
    ),
    key("target", Ratio, "Utilization to aim at, such as 80%."),
    key("half_life", Duration, "Time in which the weight of a report halves."),
    key("floor", Ratio, "Least part of requests that pass."),
    key("priority_key", Text, "Key whose value is the priority of a request."),
    key("stale_after", Duration, "Time after which a report does not count."),
];
