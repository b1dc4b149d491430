//! File descriptors, of which each connection takes one.

/// What the process needs beside gRPC connections: those of HTTP, to Redis, files, and so on.
#[cfg(target_os = "linux")]
const RESERVE: u64 = 512;

/// Takes as many as the system allows, and tells if those are fewer than so many connections need.
#[cfg(target_os = "linux")]
pub(super) fn claim(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let before = getrlimit(Resource::Nofile);
    let most = Rlimit { current: before.maximum, maximum: before.maximum };
    // What it refuses is told below, if it matters.
    let limit = if setrlimit(Resource::Nofile, most).is_ok() { most } else { before };
    let needed = (connections as u64).saturating_add(RESERVE);
    if let Some(some) = limit.current.filter(|some| *some < needed) {
        tracing::warn!("there are {some} file descriptors (ulimit -n), and --max-connections wants {needed}");
    }
}

/// Elsewhere they are left as they are.
#[cfg(not(target_os = "linux"))]
pub(super) const fn claim(_connections: usize) {}
