//! What the exporter is told before anything is counted: what its metrics mean, and which series there will be.
//!
//! A series that begins with its first event hides that event from `rate()`.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::{
    rules::{List, SwitchMode},
    store::StoreError,
};

/// Counters of the exporter.
const COUNTERS: [(&str, &str); 16] = [
    (
        "tollgate_series_dropped_total",
        "Decisions that were not counted under a path of their own, for want of room.",
    ),
    ("tollgate_shadow_mode_passes_total", "Requests that passed only because of the process's shadow mode."),
    ("tollgate_degraded_total", "Descriptors that the store did not decide."),
    ("tollgate_rules_store_errors_total", "Errors of the store of versions, lists and switches."),
    ("tollgate_trace_spans_total", "Spans of traces that the collector took, or that are lost."),
    ("tollgate_top_talkers_samples_dropped_total", "Samples of top talkers that were not taken in."),
    ("tollgate_refunds_total", "Calls that gave back what was charged."),
    ("tollgate_redis_calls_total", "Calls, by how they came to a decision."),
    ("tollgate_redis_commands_total", "Commands sent to Redis to decide calls."),
    ("tollgate_redis_breaker_opened_total", "How often a way to a Redis server was given up."),
    ("tollgate_unknown_domain_requests_total", "Requests for a domain without rules."),
    ("tollgate_connections_refused_total", "Connections closed at once, because there were too many."),
    ("tollgate_tls_handshakes_total", "TLS handshakes."),
    ("tollgate_tls_reloads_total", "Changes of TLS files."),
    ("tollgate_panics_total", "Panics, by what their thread is there for."),
    ("tollgate_memory_evictions_total", "Counters that the memory store dropped to make room."),
];

/// Gauges of the exporter.
const GAUGES: [(&str, &str); 18] = [
    ("tollgate_replicas", "Instances that share the limits."),
    ("tollgate_redis_connections", "Connections to Redis servers, by what they are."),
    ("tollgate_redis_breakers_open", "Ways to a Redis server whose calls fail at once."),
    ("tollgate_rules_version", "Version of the rules in force; 0 where versions have no numbers."),
    ("tollgate_rules_latest_version", "Version of the rules that is current in their store."),
    ("tollgate_rules_loaded_timestamp_seconds", "Since when the rules are in force."),
    ("tollgate_rules_store_up", "1 while the store of versions, lists and switches answers."),
    ("tollgate_xds_connected", "1 while the control plane that rules come from is there."),
    ("tollgate_xds_last_response_timestamp_seconds", "When the control plane last sent anything."),
    ("tollgate_overrides_generation", "Generation of the lists and switches in force."),
    ("tollgate_list_entries", "Entries of a list in force."),
    ("tollgate_rule_switches", "Switches of rules in force."),
    ("tollgate_top_talkers_sketch_bytes", "Memory of the sketches of top talkers."),
    ("tollgate_domains", "Domains in force."),
    ("tollgate_rules", "Rules in force."),
    ("tollgate_grpc_connections", "gRPC connections open."),
    ("tollgate_tls_certificate_expiry_timestamp_seconds", "When the first of a port's certificates expires."),
    ("tollgate_memory_counters", "Counters that the memory store holds."),
];

/// Counters without labels, of everything that may happen to anyone.
const ALWAYS: [&str; 3] = [
    "tollgate_series_dropped_total",
    "tollgate_shadow_mode_passes_total",
    "tollgate_unknown_domain_requests_total",
];

/// Tells the exporter all of it.
pub(super) fn start() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for name in ALWAYS {
        counter!(name).increment(0);
    }
    for result in ["success", "error"] {
        counter!("tollgate_refunds_total", "result" => result).increment(0);
    }
    for result in ["success", "dropped"] {
        counter!("tollgate_trace_spans_total", "result" => result).increment(0);
    }
    for port in ["grpc", "http", "admin"] {
        counter!("tollgate_connections_refused_total", "port" => port).increment(0);
    }
    for thread in ["worker", "main", "config", "other"] {
        counter!("tollgate_panics_total", "thread" => thread).increment(0);
    }
    for list in List::ALL {
        gauge!("tollgate_list_entries", "list" => list.name()).increment(0);
    }
    for mode in SwitchMode::ALL {
        gauge!("tollgate_rule_switches", "mode" => mode.name()).increment(0);
    }
    gauge!("tollgate_overrides_generation").increment(0);
    gauge!("tollgate_grpc_connections").increment(0);
}

/// Tells it of a store that may fail.
pub(super) fn store() {
    for kind in StoreError::LABELS.into_iter().chain(["lost"]) {
        counter!("tollgate_rules_store_errors_total", "kind" => kind).increment(0);
    }
}
