//! What is counted of versions of the rules, and of lists and switches.

use std::time::Duration;

use metrics::{counter, gauge};

use crate::control::{List, Runtime, SwitchMode};

/// Tells which version is in force, 0 where versions have no numbers, and since when, in milliseconds since 1970.
pub fn rules_version(version: Option<u64>, since_ms: u64) {
    gauge!("tollgate_rules_version").set(version.unwrap_or_default() as f64);
    gauge!("tollgate_rules_loaded_timestamp_seconds").set(Duration::from_millis(since_ms).as_secs_f64());
}

/// Tells which version is current in the store, 0 for none.
pub fn latest_rules_version(version: u64) {
    gauge!("tollgate_rules_latest_version").set(version as f64);
}

/// Tells whether the store of versions, lists and switches answers.
pub fn rules_store_up(is_up: bool) {
    gauge!("tollgate_rules_store_up").set(if is_up { 1.0 } else { 0.0 });
}

/// Counts an error of that store, by its label.
pub fn rules_store_error(kind: &'static str) {
    counter!("tollgate_rules_store_errors_total", "kind" => kind).increment(1);
}

/// Tells whether the control plane that rules come from is there.
pub fn xds_connected(is_connected: bool) {
    gauge!("tollgate_xds_connected").set(if is_connected { 1.0 } else { 0.0 });
}

/// Tells when the control plane last sent anything, in milliseconds since 1970.
pub fn xds_heard(at_ms: u64) {
    gauge!("tollgate_xds_last_response_timestamp_seconds").set(Duration::from_millis(at_ms).as_secs_f64());
}

/// Tells which lists and switches are in force at `now_ms`, in milliseconds since 1970.
pub fn overrides(runtime: &Runtime, now_ms: u64) {
    gauge!("tollgate_overrides_generation").set(runtime.generation as f64);
    let lasts = |end: Option<u64>| end.is_none_or(|end| end > now_ms);
    for (list, name) in [(List::Allow, "allow"), (List::Deny, "deny")] {
        let entries = runtime.entries.iter().filter(|entry| entry.list == list && lasts(entry.expires_at_ms));
        gauge!("tollgate_list_entries", "list" => name).set(entries.count() as f64);
    }
    for (mode, name) in [(SwitchMode::Off, "off"), (SwitchMode::Shadow, "shadow")] {
        let switches =
            runtime.switches.iter().filter(|switch| switch.mode == mode && lasts(switch.expires_at_ms));
        gauge!("tollgate_rule_switches", "mode" => name).set(switches.count() as f64);
    }
}
