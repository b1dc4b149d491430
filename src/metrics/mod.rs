//! Every metric's name and labels; the only user of the metrics macros.
//!
//! What many threads add to at every call is kept in `striped` counters and in `histogram`s. What is read here too, for
//! the history, the rules' table, the reference's names and those who take changes, is written to the page by its own
//! file; the rest is the exporter's.

mod changes;
mod degraded;
mod departed;
mod domain;
mod edge;
mod histogram;
mod history;
mod latency;
mod lists;
mod loads;
mod page;
mod process;
mod readable;
mod redis;
mod reference;
mod requests;
mod rule;
mod rules;
mod rules_page;
mod series;
mod service;
mod start;
mod stats;
mod stat_name;
mod striped;
mod totals;
mod values;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

use self::page::Page;
pub(crate) use self::series::MOST_RULES;
pub use self::{
    changes::{Change, Changes, Measure, Told},
    degraded::{degraded, shadowed, trace_spans_dropped_at_once, unknown_domain},
    domain::DomainCounters,
    edge::{
        Handshake, connection_closed, connection_opened, connection_refused, handshake, panicked, tls_in_use,
        tls_reload,
    },
    history::{History, INTERVAL_S, Sample, history},
    latency::{call_took, store_took},
    lists::listed_elsewhere,
    loads::config_load,
    redis::{
        Link, OpenBreaker, Queues, RedisConnection, Way, redis_breaker_opened, redis_breakers_open,
        redis_queues, redis_saved, redis_sent,
    },
    requests::{answered, request_degraded},
    rule::{RuleCounters, hits, rule_degraded},
    rules::{
        latest_rules_version, overrides, rules_store_error, rules_store_up, rules_version, xds_connected,
        xds_heard,
    },
    totals::{RuleTotal, RuleTotals, rule_totals},
    values::ValueCounters,
};

/// Which names a page has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Our own.
    #[default]
    Own,
    /// Those of envoyproxy/ratelimit as well.
    AlsoReference,
}

/// Renders what was counted.
#[derive(Clone)]
pub struct Exporter {
    handle: PrometheusHandle,
    names: Names,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exporter")
    }
}

/// Starts counting, once in a process.
///
/// # Errors
/// When counting was started before.
pub fn install(names: Names) -> Result<Exporter, BuildError> {
    let handle = PrometheusBuilder::new().install_recorder()?;
    process::began();
    start::start();
    Ok(Exporter { handle, names })
}

impl Exporter {
    /// Everything counted so far, in Prometheus' text format.
    pub fn render(&self) -> String {
        striped::publish();
        let mut page = Page::after(self.handle.render());
        let rules = series::all();
        requests::write(&mut page);
        latency::write(&mut page);
        loads::write(&mut page);
        lists::write(&mut page);
        redis::write(&mut page);
        rules_page::write(&mut page, &rules);
        process::write(&mut page);
        match self.names {
            Names::Own => {}
            Names::AlsoReference => reference::write(&mut page, &rules),
        }
        page.into_text()
    }

    /// Everything counted so far under the names of envoyproxy/ratelimit, a line each.
    pub fn stats(&self) -> String {
        striped::publish();
        stats::listed(&series::all())
    }

    /// Ends an interval of the history, and frees what is held on to between scrapes; to be called every
    /// [`INTERVAL_S`].
    pub fn maintain(&self) {
        history::sample();
        series::tidy();
        lists::tidy();
        self.handle.run_upkeep();
    }
}

/// Has everything begin at zero that is counted of a store in Redis.
pub fn redis_in_use() {
    redis::in_use();
    degraded::in_use();
    start::store();
}

/// Tells how many rules are in force.
pub fn rules_in_force(domains: usize, rules: usize) {
    // Exact up to 2^53.
    metrics::gauge!("tollgate_domains").set(domains as f64);
    metrics::gauge!("tollgate_rules").set(rules as f64);
}

/// Tells how full the memory store is: counters held, and live ones dropped since the start to make room.
pub fn memory_store(counters: usize, evicted: u64) {
    metrics::gauge!("tollgate_memory_counters").set(counters as f64);
    metrics::counter!("tollgate_memory_evictions_total").absolute(evicted);
}

/// Counts calls that give back what a request had charged, which did not pass or whose caller had gone.
pub fn given_back(succeeded: bool) {
    let result = if succeeded { "success" } else { "error" };
    metrics::counter!("tollgate_refunds_total", "result" => result).increment(1);
}

/// Tells how many instances share the limits, as was counted in Redis.
pub fn replicas(count: u32) {
    metrics::gauge!("tollgate_replicas").set(f64::from(count));
}

/// Counts spans of traces that the collector took.
pub fn trace_spans_delivered(count: usize) {
    trace_spans("success", count);
}

/// Counts spans of traces that are lost.
pub fn trace_spans_dropped(count: usize) {
    trace_spans("dropped", count);
}

fn trace_spans(result: &'static str, count: usize) {
    metrics::counter!("tollgate_trace_spans_total", "result" => result).increment(count as u64);
}

/// Counts samples of top talkers that found no room.
pub fn top_samples_dropped(count: u64) {
    metrics::counter!("tollgate_top_talkers_samples_dropped_total").increment(count);
}

/// Tells how much memory the sketches of top talkers take, in bytes.
pub fn top_sketches(bytes: usize) {
    metrics::gauge!("tollgate_top_talkers_sketch_bytes").set(bytes as f64);
}
