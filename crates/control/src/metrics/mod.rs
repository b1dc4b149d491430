//! Metrics of the rules, of the records over them, and of the store that holds both.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::ban::BanMode;
use tollgate_metrics::{Computed, Counter, CounterFamily, Gauge, GaugeFamily, Metric};
use tollgate_rules::{List, OverriddenCounts, OverrideTarget, SwitchMode};
use tollgate_store::StoreError;

use crate::{AutomaticMode, BanCounts, CopyState, Runtime, events};

/// Metrics of rules and records.
pub static METRICS: &[&dyn Metric] = &[
    &DOMAINS,
    &RULES,
    &CONFIG_LOADS,
    &LAST_LOAD_SUCCESSFUL,
    &OVERLAY_PATTERNS,
    &UNMATCHED_OVERLAY_PATTERNS,
    &RULES_VERSION,
    &LATEST_VERSION,
    &RULES_LOADED,
    &STORE_UP,
    &STORE_ERRORS,
    &RULES_COMPARED,
    &RULES_COPIES,
    &RECORDS_REVISION,
    &LIST_ENTRIES,
    &AUTOMATIC_ENTRIES,
    &AUTOMATIC_REFUSED,
    &RULE_SWITCHES,
    &RULE_OVERRIDES,
    &UNMATCHED_OVERRIDES,
    &ACTIVE_BANS,
    &UNLISTED_BANS,
    &events::EVENTS,
    &events::EVENTS_DROPPED,
];

static DOMAINS: Gauge = Gauge::new("tollgate_domains", "Active domains.");

static RULES: Gauge = Gauge::new("tollgate_rules", "Active rules.");

static CONFIG_LOADS: Computed<1> = Computed::counter(
    "tollgate_config_loads_total",
    &["result"],
    "Attempts to load rules.",
    |[declared], page| {
        page.begin(declared);
        for (load, count) in ConfigLoad::ALL.into_iter().zip(&LOADS) {
            page.sample(declared, &[load.name()], count.load(Ordering::Relaxed));
        }
    },
);

static LAST_LOAD_SUCCESSFUL: Computed<1> = Computed::gauge(
    "tollgate_config_last_load_successful",
    &[],
    "1 if the last attempt to load rules succeeded, else 0.",
    |[declared], page| {
        // Where there is no version yet, none is bad.
        let latest = LATEST_LOAD.load(Ordering::Relaxed);
        if latest != NO_LOAD {
            page.single(declared, latest);
        }
    },
);

static OVERLAY_PATTERNS: Gauge = Gauge::at_zero(
    "tollgate_overlay_patterns",
    "Patterns with keys in the overlay that was laid over the active rules.",
);

static UNMATCHED_OVERLAY_PATTERNS: Gauge = Gauge::at_zero(
    "tollgate_overlay_patterns_unmatched",
    "Patterns with keys in the overlay that match nothing in the active rules.",
);

static RULES_VERSION: Gauge =
    Gauge::new("tollgate_rules_version", "Active version of the rules; 0 where versions have no numbers.");

pub(super) static LATEST_VERSION: Gauge =
    Gauge::new("tollgate_rules_latest_version", "Current version of the rules in their store; 0 for none.");

static RULES_LOADED: Gauge = Gauge::new(
    "tollgate_rules_loaded_timestamp_seconds",
    "Time when the active rules were loaded, in seconds since 1970.",
);

pub(super) static STORE_UP: Gauge =
    Gauge::new("tollgate_rules_store_up", "1 while the store of versions and records answers, else 0.");

pub(super) static STORE_ERRORS: CounterFamily<1> = CounterFamily::new(
    "tollgate_rules_store_errors_total",
    &["kind"],
    "Errors of the store of versions and records.",
);

static RULES_COMPARED: Computed<1> = Computed::gauge(
    "tollgate_rules_compared_timestamp_seconds",
    &[],
    "Time when this region last compared its rules and records with those of the region that writes them, in seconds \
     since 1970.",
    |[declared], page| {
        let at_ms = COMPARED_MS.load(Ordering::Relaxed);
        if at_ms != WRITES_RULES {
            page.single(declared, at_ms / 1_000);
        }
    },
);

pub(super) static RULES_COPIES: CounterFamily<1> = CounterFamily::new(
    "tollgate_rules_copies_total",
    &["result"],
    "Comparisons of this region's rules and records with those of the writing region, by this instance.",
);

/// Time of the last comparison in milliseconds since 1970, 0 for none.
static COMPARED_MS: AtomicU64 = AtomicU64::new(WRITES_RULES);

/// No other region writes the rules.
const WRITES_RULES: u64 = u64::MAX;

static RECORDS_REVISION: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_records_revision",
    &["book"],
    "Revision of the active records of a book: the time of the last change, in microseconds since 1970.",
    &[["operators"], ["system"]],
);

static LIST_ENTRIES: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_list_entries",
    &["list"],
    "Active entries of a list.",
    &[[List::Allow.name()], [List::Deny.name()]],
);

static AUTOMATIC_ENTRIES: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_abuse_entries",
    &["mode"],
    "Active automatic entries of the deny list.",
    &[[AutomaticMode::Enforce.name()], [AutomaticMode::Exempt.name()]],
);

/// Clients without room among the automatic entries.
pub static AUTOMATIC_REFUSED: Counter = Counter::new(
    "tollgate_abuse_refused_total",
    "Clients that were banned often enough and are not listed, because there are too many automatic entries.",
);

static RULE_SWITCHES: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_rule_switches",
    &["mode"],
    "Active switches of rules; an emergency is one of all rules of a domain.",
    &[[SwitchMode::Off.name()], [SwitchMode::Shadow.name()], [SwitchMode::Emergency.name()]],
);

static RULE_OVERRIDES: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_rule_overrides",
    &["kind"],
    "Active overrides, of rules and of single keys.",
    &[["rule"], ["key"]],
);

static UNMATCHED_OVERRIDES: Gauge = Gauge::at_zero(
    "tollgate_rule_overrides_unmatched",
    "Overrides without effect: their rule is not active, or does not have such a key or limit.",
);

static ACTIVE_BANS: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_bans_active",
    &["mode"],
    "Active bans in the list, which the instances share.",
    &[[BanMode::Watch.name()], [BanMode::Enforce.name()]],
);

/// Bans that are not listed.
pub static UNLISTED_BANS: Counter = Counter::new(
    "tollgate_bans_unlisted_total",
    "Bans that are missing in the list, because too many began or the store of the list failed.",
);

/// Attempts to load rules, by result.
static LOADS: [AtomicU64; ConfigLoad::ALL.len()] = [const { AtomicU64::new(0) }; ConfigLoad::ALL.len()];

tollgate_core::named! {
    /// Result of an attempt to load rules.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ConfigLoad {
        /// The rules are valid.
        Success = "success",
        /// The rules are invalid.
        Error = "error",
        /// The rules are valid and lack most of the active ones.
        Refused = "refused",
        /// A file is still being written.
        Unfinished = "unfinished",
    }
}

/// Result of the last attempt.
static LATEST_LOAD: AtomicU8 = AtomicU8::new(NO_LOAD);

const NO_LOAD: u8 = u8::MAX;

/// Counts an attempt to load rules that are valid or not.
pub fn config_load(succeeded: bool) {
    count_load(if succeeded { ConfigLoad::Success } else { ConfigLoad::Error });
}

/// Counts an attempt to load rules.
pub fn count_load(load: ConfigLoad) {
    if let Some(count) = LOADS.get(load as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    LATEST_LOAD.store(u8::from(load == ConfigLoad::Success), Ordering::Relaxed);
}

/// Attempts to load rules so far: successful ones and all others.
pub fn config_loads() -> [u64; 2] {
    let [succeeded, failed @ ..] = &LOADS;
    [succeeded.load(Ordering::Relaxed), failed.iter().map(|count| count.load(Ordering::Relaxed)).sum()]
}

/// Records the number of active domains and rules.
pub fn active_rules(domains: usize, rules: usize) {
    // Exact up to 2^53.
    DOMAINS.set(domains as f64);
    RULES.set(rules as f64);
}

/// Records the number of patterns in the overlay of the active rules, and of those that match nothing.
pub fn overlay(patterns: usize, unmatched: usize) {
    OVERLAY_PATTERNS.set(patterns as f64);
    UNMATCHED_OVERLAY_PATTERNS.set(unmatched as f64);
}

/// Records the active version, 0 where versions have no numbers, and when it was loaded, in milliseconds since 1970.
pub fn rules_version(version: Option<u64>, since_ms: u64) {
    RULES_VERSION.set(version.unwrap_or_default() as f64);
    RULES_LOADED.set(Duration::from_millis(since_ms).as_secs_f64());
}

/// Records the last comparison with the region that writes the rules, if another one does.
pub(super) fn rules_compared(state: Option<&CopyState>) {
    let at_ms = state.map_or(WRITES_RULES, |state| state.compared_ms.unwrap_or_default());
    COMPARED_MS.store(at_ms, Ordering::Relaxed);
}

/// Exports the errors of a store at zero, so that a first one is seen as a change.
pub fn export_store_errors() {
    StoreError::LABELS.into_iter().chain(["lost"]).for_each(|kind| STORE_ERRORS.export([kind]));
}

/// Records the revisions of the active records: of the operators' book and of the system's.
pub(super) fn records_revisions(operators: u64, system: u64) {
    // Exact up to 2^53.
    RECORDS_REVISION.set(["operators"], operators as f64);
    RECORDS_REVISION.set(["system"], system as f64);
}

/// Records the active lists and switches.
pub(super) fn lists(runtime: &Runtime) {
    for list in List::ALL {
        let entries = runtime.entries.iter();
        let entries = entries.filter(|entry| entry.list == list);
        LIST_ENTRIES.set([list.name()], entries.count() as f64);
    }
    for mode in AutomaticMode::ALL {
        let entries = runtime.automatic.iter();
        let entries = entries.filter(|entry| entry.mode == mode);
        AUTOMATIC_ENTRIES.set([mode.name()], entries.count() as f64);
    }
    for mode in SwitchMode::ALL {
        let switches = runtime.switches.iter();
        let switches = switches.filter(|switch| switch.mode == mode);
        RULE_SWITCHES.set([mode.name()], switches.count() as f64);
    }
}

/// Records the overrides of the active rules, after a change of either.
pub fn rule_overrides(active: &dyn OverrideTarget) {
    // Rules and overrides change in different threads: the counts of the earlier change must not be recorded last.
    static RECORDING: Mutex<()> = Mutex::new(());
    let _recording = RECORDING.lock();
    let OverriddenCounts { rules, keys, unmatched } = active.overridden_counts();
    RULE_OVERRIDES.set(["rule"], rules as f64);
    RULE_OVERRIDES.set(["key"], keys as f64);
    UNMATCHED_OVERRIDES.set(unmatched as f64);
}

/// Records the number of active bans.
pub(super) fn active_bans(BanCounts { enforce, watch }: BanCounts) {
    ACTIVE_BANS.set([BanMode::Enforce.name()], enforce as f64);
    ACTIVE_BANS.set([BanMode::Watch.name()], watch as f64);
}

#[cfg(test)]
mod tests;
