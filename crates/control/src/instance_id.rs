//! Identifiers of instances.

use super::bounds::truncated;

/// A unique id: the host's name and a random part.
pub(super) fn instance_id() -> String {
    format!("{}-{:08x}", truncated(host_name()), fastrand::u32(..))
}

#[cfg(target_os = "linux")]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The host name is read on Linux only.
#[cfg(not(target_os = "linux"))]
fn host_name() -> String {
    "tollgate".to_owned()
}
