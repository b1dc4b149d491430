//! All metrics of the program, those of the process itself, and their maintenance.

use std::sync::OnceLock;

use tollgate_control as control;
use tollgate_core::clock::Clock;
use tollgate_limiter::{self as limiter, talkers};
use tollgate_metrics::{Computed, CounterFamily, Declared, Exporter, Metric, MetricKind, series};
use tollgate_store as store;

use super::busy_time::BUSY_SECONDS;
use crate::{
    fleet::{self, history},
    grpc, http, legacy_stats, net, regions, rollouts, service,
    settings::MetricNames,
    tracing, xds,
};

/// Metrics of each module.
const OWN_METRICS: [&[&dyn Metric]; 15] = [
    service::metrics::METRICS,
    limiter::metrics::METRICS,
    store::metrics::METRICS,
    store::redis::metrics::METRICS,
    control::metrics::METRICS,
    xds::metrics::METRICS,
    net::metrics::METRICS,
    http::ADMIN_METRICS,
    grpc::http2_errors::METRICS,
    talkers::METRICS,
    fleet::metrics::METRICS,
    rollouts::metrics::METRICS,
    regions::metrics::METRICS,
    tracing::metrics::METRICS,
    METRICS,
];

/// Metrics of the process.
static METRICS: &[&dyn Metric] = &[&PANICS, &BUSY_SECONDS, &BUILD_INFO, &PROCESS];

static PANICS: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_panics_total",
    &["thread"],
    "Panics by the kind of their thread.",
    &[["worker"], ["main"], ["config"], ["other"]],
);

static BUILD_INFO: Computed<1> = Computed::gauge(
    "tollgate_build_info",
    &["version"],
    "1, with the version of the program as a label.",
    |[declared], page| {
        page.begin(declared);
        page.sample(declared, &[env!("CARGO_PKG_VERSION")], 1);
    },
);

const fn gauge(name: &'static str, help: &'static str) -> Declared {
    Declared { name, kind: MetricKind::Gauge, labels: &[], help }
}

/// State of the process as the operating system has it, under the names of Prometheus' own libraries. Values that it does
/// not provide are left out.
static PROCESS: Computed<6> = Computed::group(
    [
        gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970."),
        Declared {
            name: "process_cpu_seconds_total",
            kind: MetricKind::Counter,
            labels: &[],
            help: "User and system CPU time, in seconds.",
        },
        gauge("process_resident_memory_bytes", "Resident memory, in bytes."),
        gauge("process_virtual_memory_bytes", "Virtual memory, in bytes."),
        gauge("process_open_fds", "Open file descriptors."),
        gauge("process_max_fds", "Maximum number of open file descriptors."),
    ],
    |[start, others @ ..], page| {
        if let Some(started) = STARTED.get() {
            page.single(start, started);
        }
        #[cfg(target_os = "linux")]
        linux::write(others, page);
    },
);

/// Start of the process, in seconds since 1970.
static STARTED: OnceLock<u32> = OnceLock::new();

/// The exporter of all metrics under these names.
pub(super) fn exporter(names: MetricNames) -> Exporter {
    STARTED.get_or_init(|| Clock::System.now().seconds());
    let legacy = match names {
        MetricNames::Own => &[],
        MetricNames::WithLegacy => legacy_stats::METRICS,
    };
    Exporter::new(OWN_METRICS.into_iter().chain([legacy]).flatten().copied())
}

/// Declarations of all metrics of the program, by name.
pub fn catalogue() -> Vec<Declared> {
    let all = OWN_METRICS.into_iter().chain([legacy_stats::METRICS]).flatten();
    let mut declared: Vec<_> = all.flat_map(|metric| metric.declared()).copied().collect();
    declared.sort_by_key(|declared| declared.name);
    declared
}

/// Samples the history, and evicts series that are not used any more; to be called every [`history::INTERVAL_S`].
pub(super) fn maintain() {
    history::sample();
    series::evict_unused();
    limiter::metrics::evict_unused_domains();
}

/// Exports everything that a store in Redis counts at zero, so that a first event is seen as a change.
pub(super) fn export_redis() {
    store::redis::metrics::export();
    limiter::metrics::export_degraded();
    control::metrics::export_store_errors();
}

/// Counts a panic on a thread of that kind.
pub(super) fn panicked(thread: &'static str) {
    PANICS.increment([thread]);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use rustix::{
        process::{Resource, getrlimit},
        time::{ClockId, clock_gettime},
    };

    use tollgate_metrics::{Declared, Page};

    pub(super) fn write([cpu, resident, virtual_memory, open, max]: &[Declared; 5], page: &mut Page) {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        page.single(cpu, format_args!("{}.{:09}", spent.tv_sec, spent.tv_nsec));
        let memory = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut gauge = |declared, value: Option<u64>| {
            if let Some(value) = value {
                page.single(declared, value);
            }
        };
        gauge(resident, bytes(&memory, "VmRSS:"));
        gauge(virtual_memory, bytes(&memory, "VmSize:"));
        // One of them is the directory itself, while it is read.
        let fds = fs::read_dir("/proc/self/fd").ok().map(|open| (open.count() as u64).saturating_sub(1));
        gauge(open, fds);
        gauge(max, getrlimit(Resource::Nofile).current);
    }

    /// The value of a line of the status, which is in kibibytes.
    fn bytes(status: &str, field: &str) -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_metric_is_declared_once_with_a_help_that_does_not_repeat_its_name() {
        let all = catalogue();
        assert!(all.len() > 50, "{}", all.len());
        let names: BTreeSet<_> = all.iter().map(|declared| declared.name).collect();
        assert_eq!(names.len(), all.len());
        for Declared { name, kind, help, .. } in all {
            assert!(help.ends_with('.') && !help.contains(name), "{name}: {help}");
            let is_total = name.ends_with("_total");
            assert!(!is_total || kind == MetricKind::Counter, "{name} is no {}", kind.name());
        }
    }
}
