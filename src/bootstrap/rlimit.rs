//! Limit on open file descriptors (`RLIMIT_NOFILE`); each connection takes one.

/// File descriptors reserved for everything but gRPC connections: 1,024 for each of the three HTTP ports, and 512 for Redis,
/// files and so on.
#[cfg(target_os = "linux")]
const RESERVED_DESCRIPTORS: u64 = 3 * 1_024 + 512;

/// Raises the limit to the maximum that the system allows, and warns if `connections` may exceed it.
#[cfg(target_os = "linux")]
pub(super) fn raise(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let before = getrlimit(Resource::Nofile);
    let highest = Rlimit { current: before.maximum, maximum: before.maximum };
    // A refusal is logged below if it matters.
    let limit = if setrlimit(Resource::Nofile, highest).is_ok() { highest } else { before };
    let needed = (connections as u64).saturating_add(RESERVED_DESCRIPTORS);
    if let Some(limit) = limit.current.filter(|limit| *limit < needed) {
        tracing::warn!(limit, needed, "too few file descriptors for --max-connections (ulimit -n)");
    }
}

/// Leaves the limit unchanged on other systems.
#[cfg(not(target_os = "linux"))]
pub(super) const fn raise(_connections: usize) {}
