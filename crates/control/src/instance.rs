//! What an instance tells of itself.

use serde::{Deserialize, Serialize};

use super::bounds::shortened;

/// What an instance tells of itself, every second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Tells instances apart: the host's name and a random part.
    pub id: String,
    /// The program's version.
    pub program: String,
    /// The version of the rules that it enforces, if they have one.
    pub version: Option<u64>,
    /// The fingerprint of the rules that it enforces.
    pub fingerprint: String,
    /// The generation of the lists and switches that it enforces.
    pub generation: u64,
    /// Since when it runs, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// When it last told, in milliseconds since 1970.
    pub seen_at_ms: u64,
    /// Domains that were asked about within the last minute; not all of them where there are many.
    pub active_domains: Vec<String>,
    /// Why it does not enforce the current version, if it does not.
    pub problem: Option<String>,
}

/// A name that no other instance goes by: the host's, and a random part.
pub(super) fn name_of_instance() -> String {
    format!("{}-{:08x}", shortened(host()), fastrand::u32(..))
}

/// The host's name.
#[cfg(target_os = "linux")]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The host's name is not asked for elsewhere.
#[cfg(not(target_os = "linux"))]
fn host() -> String {
    "tollgate".to_owned()
}
