//! Every metric's name and labels; the only user of the metrics macros.

mod edge;
mod redis;
mod rule;
mod striped;

use std::sync::{Arc, LazyLock};

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

use self::striped::Striped;
pub use self::{
    edge::{
        Handshake, connection_closed, connection_opened, connection_refused, handshake, panicked, tls_reload,
    },
    redis::{OpenBreaker, Way, redis_breaker_opened, redis_saved, redis_sent},
    rule::{RuleCounters, hits},
};

/// Renders what was counted.
#[derive(Clone)]
pub struct Exporter(PrometheusHandle);

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exporter")
    }
}

/// Starts counting, once in a process.
///
/// # Errors
/// When counting was started before.
pub fn install() -> Result<Exporter, BuildError> {
    PrometheusBuilder::new().install_recorder().map(Exporter)
}

impl Exporter {
    /// Everything counted so far, in Prometheus' text format.
    pub fn render(&self) -> String {
        striped::publish();
        self.0.render()
    }

    /// Frees what the exporter holds on to between scrapes; to be called every few seconds.
    pub fn maintain(&self) {
        striped::publish();
        self.0.run_upkeep();
    }
}

/// Counts an attempt to load the rules.
pub fn config_load(loaded: bool) {
    let result = if loaded { "success" } else { "error" };
    metrics::counter!("tollgate_config_loads_total", "result" => result).increment(1);
}

/// Tells how many rules are in force.
pub fn rules_in_force(domains: usize, rules: usize) {
    // Exact up to 2^53.
    metrics::gauge!("tollgate_domains").set(domains as f64);
    metrics::gauge!("tollgate_rules").set(rules as f64);
}

/// Counts a request by what came of it: `ok`, `over_limit`, or the label of the error.
pub fn answered(result: &'static str) {
    static FREQUENT: LazyLock<Arc<Striped<2>>> =
        LazyLock::new(|| Striped::new(["ok", "over_limit"].map(requests)));
    match result {
        "ok" => FREQUENT.add([1, 0]),
        "over_limit" => FREQUENT.add([0, 1]),
        rare => requests(rare).increment(1),
    }
}

fn requests(result: &'static str) -> metrics::Counter {
    metrics::counter!("tollgate_requests_total", "result" => result)
}

/// Tells how full the memory store is: counters held, and live ones dropped since the start to make room.
pub fn memory_store(counters: usize, evicted: u64) {
    metrics::gauge!("tollgate_memory_counters").set(counters as f64);
    metrics::counter!("tollgate_memory_evictions_total").absolute(evicted);
}

/// Counts a request for a domain that no rules are loaded for. The name is the caller's, so it is no label.
pub fn unknown_domain() {
    metrics::counter!("tollgate_unknown_domain_requests_total").increment(1);
}

/// Counts calls that give back what a request had charged, which did not pass or whose caller had gone.
pub fn given_back(succeeded: bool) {
    let result = if succeeded { "success" } else { "error" };
    metrics::counter!("tollgate_given_back_total", "result" => result).increment(1);
}

/// Counts a descriptor that was decided without the store: how, and the label of the store's error.
pub fn degraded(policy: &'static str, reason: &'static str) {
    metrics::counter!("tollgate_degraded_total", "policy" => policy, "reason" => reason).increment(1);
}

/// Tells how many instances share the limits, as was counted in Redis.
pub fn replicas(count: u32) {
    metrics::gauge!("tollgate_replicas").set(f64::from(count));
}

/// Counts a request that passed only because of the process's shadow mode.
pub fn shadowed() {
    metrics::counter!("tollgate_shadow_mode_passes_total").increment(1);
}
