//! Record of an instance: what it is and enforces, by its last heartbeat.

use serde::{Deserialize, Serialize};

use crate::bounds::truncated;

/// Heartbeat record of an instance, sent every second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Unique id: the host's name and a random part.
    pub id: String,
    /// Version of the program.
    pub program: String,
    /// The active version of the rules, if versions have numbers.
    pub version: Option<u64>,
    /// Fingerprint of the active rules.
    pub fingerprint: String,
    /// Revision of the active records.
    pub generation: u64,
    /// Start of the process, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// Time of the heartbeat, in milliseconds since 1970.
    pub seen_at_ms: u64,
    /// Generation of the region table, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_generation: Option<u64>,
    /// Domains with requests within the last minute; incomplete if there are many.
    pub active_domains: Vec<String>,
    /// Reason why the current version is not active, if it is not.
    pub problem: Option<String>,
}

/// A unique id: the host's name and a random part.
pub(crate) fn instance_id() -> String {
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
