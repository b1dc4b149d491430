//! All metrics of the program, those of the process itself, and their maintenance.

use std::sync::{Arc, OnceLock, Weak};
use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::time::{self, MissedTickBehavior};
use tollgate_control as control;
use tollgate_core::clock::Clock;
use tollgate_envoyproxy::stats as envoyproxy_stats;
use tollgate_fleet::{self as fleet, history, rollouts};
use tollgate_limiter as limiter;
use tollgate_limiter::talkers;
use tollgate_metrics::{Computed, CounterFamily, Declared, Exporter, Metric, series};
use tollgate_serve::{grpc, net, service};
use tollgate_store as store;
use tollgate_telemetry::traces;
use tollgate_xds as xds;

/// Metrics of each module.
const OWN_METRICS: &[&[&dyn Metric]] = &[
    service::metrics::METRICS,
    limiter::metrics::METRICS,
    store::metrics::METRICS,
    store::redis::METRICS,
    control::metrics::METRICS,
    xds::metrics::METRICS,
    net::metrics::METRICS,
    tollgate_admin::METRICS,
    grpc::http2::METRICS,
    talkers::METRICS,
    fleet::metrics::METRICS,
    rollouts::METRICS,
    #[cfg(feature = "regions")]
    tollgate_regions::metrics::METRICS,
    traces::metrics::METRICS,
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
    Declared::gauge(name, &[], help)
}

/// State of the process as the operating system has it, under the names of Prometheus' own libraries. Values that it does
/// not provide are left out.
static PROCESS: Computed<6> = Computed::group(
    [
        gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970."),
        Declared::counter("process_cpu_seconds_total", &[], "User and system CPU time, in seconds."),
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
pub(super) fn exporter(has_reference_names: bool) -> Exporter {
    STARTED.get_or_init(|| Clock::System.now().seconds());
    let legacy = if has_reference_names { envoyproxy_stats::METRICS } else { &[] };
    Exporter::new(OWN_METRICS.iter().copied().chain([legacy]).flatten().copied())
}

/// Declarations of all metrics of the program, by name.
pub fn catalogue() -> Vec<Declared> {
    let all = OWN_METRICS.iter().copied().chain([envoyproxy_stats::METRICS]).flatten();
    let mut declared: Vec<_> = all.flat_map(|metric| metric.declared()).copied().collect();
    declared.sort_by_key(|declared| declared.name);
    declared
}

/// Samples the history, and evicts series that are not used any more. Never returns.
pub(super) async fn maintain() -> Infallible {
    let mut ticks = time::interval(Duration::from_secs(history::INTERVAL_S));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        history::sample();
        series::evict_unused();
    }
}

/// Counts a panic on a thread of that kind.
pub(super) fn panicked(thread: &'static str) {
    PANICS.increment([thread]);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use rustix::process::{Resource, getrlimit};
    use rustix::time::{ClockId, clock_gettime};

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

pub(super) static BUSY_SECONDS: Computed<1> = Computed::counter(
    "tollgate_worker_busy_seconds_total",
    &["worker"],
    "Busy time of each worker thread and of the main thread, in seconds.",
    |[declared], page| {
        let times = times();
        if !times.is_empty() {
            page.begin(declared);
            times.iter().for_each(|(worker, busy)| page.sample(declared, &[worker], busy.as_secs_f64()));
        }
    },
);

/// Runtimes of the threads that serve, by the names of the threads.
static RUNTIMES: Mutex<Vec<(String, Weak<RuntimeMetrics>)>> = Mutex::new(Vec::new());

/// Exports the busy time of the thread of this runtime, under its name in metrics, until the result is dropped.
pub(super) fn busy_time(worker: &impl ToString, runtime: &Handle) -> Arc<RuntimeMetrics> {
    let metrics = Arc::new(runtime.metrics());
    let mut runtimes = RUNTIMES.lock();
    runtimes.retain(|(_, runtime)| runtime.strong_count() > 0);
    runtimes.push((worker.to_string(), Arc::downgrade(&metrics)));
    metrics
}

/// Busy time by thread.
fn times() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::<String, Duration>::new();
    for (worker, runtime) in &*RUNTIMES.lock() {
        let Some(runtime) = runtime.upgrade() else { continue };
        let workers = 0..runtime.num_workers();
        let busy: Duration = workers.map(|worker| runtime.worker_total_busy_duration(worker)).sum();
        *times.entry(worker.clone()).or_default() += busy;
    }
    times
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, thread, time::Instant};

    use tokio::runtime::Builder;
    use tollgate_metrics::MetricKind;

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

    #[test]
    fn a_thread_is_busy_while_it_works_and_not_while_it_waits() {
        let name = "a_thread_of_this_test";
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let serving = busy_time(&name, runtime.handle());
        let busy = || times().get(name).copied();
        assert_eq!(busy(), Some(Duration::ZERO));
        let work = Duration::from_millis(30);
        runtime.block_on(async {
            thread::sleep(work);
            // The time is taken when the thread waits.
            time::sleep(Duration::from_millis(1)).await;
        });
        let after_work = busy().expect("listed");
        assert!(after_work >= work, "{after_work:?}");
        // A thread that is suspended by the operating system counts as busy, so that it may take several attempts.
        let waits_mostly = || {
            let (before, began) = (busy(), Instant::now());
            runtime.block_on(async { time::sleep(Duration::from_millis(20)).await });
            let worked = busy().zip(before).map(|(after, before)| after.saturating_sub(before));
            worked.expect("listed") < began.elapsed() / 2
        };
        assert!((0..1_000).any(|_| waits_mostly()), "it is busy while it waits");
        drop(serving);
        assert_eq!(busy(), None);
    }
}
