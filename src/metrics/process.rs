//! What the operating system knows of the process, under the names that Prometheus' own libraries use.

use std::sync::OnceLock;

use super::page::{Kind, Page};
use crate::clock::Clock;

/// When counting began, in seconds since 1970.
static STARTED: OnceLock<u32> = OnceLock::new();

/// Notes that the process begins.
pub(super) fn began() {
    STARTED.get_or_init(|| Clock::System.now().seconds());
}

/// Adds what is known to a page. What the operating system does not tell is left out.
pub(super) fn write(page: &mut Page) {
    let name = "tollgate_build_info";
    page.begin(name, Kind::Gauge, "1, with the version as a label.");
    page.sample(name, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let started = STARTED.get().copied().map(u64::from);
    gauge(page, "process_start_time_seconds", "When the process started, in seconds since 1970.", started);
    #[cfg(target_os = "linux")]
    linux::write(page);
}

fn gauge(page: &mut Page, name: &str, help: &str, value: Option<u64>) {
    if let Some(value) = value {
        page.begin(name, Kind::Gauge, help);
        page.sample(name, &[], value);
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use rustix::{
        process::{Resource, getrlimit},
        time::{ClockId, clock_gettime},
    };

    use super::{Kind, Page, gauge};

    pub(super) fn write(page: &mut Page) {
        let name = "process_cpu_seconds_total";
        page.begin(name, Kind::Counter, "Processor time spent, in seconds.");
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        page.sample(name, &[], format_args!("{}.{:09}", spent.tv_sec, spent.tv_nsec));
        let memory = fs::read_to_string("/proc/self/status").unwrap_or_default();
        gauge(page, "process_resident_memory_bytes", "Resident memory.", bytes(&memory, "VmRSS:"));
        gauge(page, "process_virtual_memory_bytes", "Virtual memory.", bytes(&memory, "VmSize:"));
        // One of them is the directory itself, while it is read.
        let open = fs::read_dir("/proc/self/fd").ok().map(|open| (open.count() as u64).saturating_sub(1));
        gauge(page, "process_open_fds", "File descriptors open.", open);
        gauge(page, "process_max_fds", "File descriptors allowed.", getrlimit(Resource::Nofile).current);
    }

    /// What a line of the status says, which is in kibibytes.
    fn bytes(status: &str, field: &str) -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    }
}
