//! Which rules this instance enforces.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;

/// Where the rules come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RulesSource {
    /// From files in a directory.
    #[default]
    Directory,
    /// From the Redis that instances share.
    Redis,
    /// From this process, and perhaps a file of its own.
    Memory,
    /// From a control plane.
    Xds,
}

impl RulesSource {
    /// The name that the setting uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Redis => "redis",
            Self::Memory => "memory",
            Self::Xds => "xds",
        }
    }

    /// Whether rules have versions there, which operators make.
    pub const fn has_versions(self) -> bool {
        match self {
            Self::Redis | Self::Memory => true,
            Self::Directory | Self::Xds => false,
        }
    }
}

/// What this instance enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RulesState {
    /// Where the rules come from.
    pub source: RulesSource,
    /// The version in force, where versions have numbers.
    pub version: Option<u64>,
    /// The fingerprint of the content in force.
    pub fingerprint: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// The generation of the lists and switches in force.
    pub generation: u64,
    /// Why something newer is not in force, if there is something.
    pub problem: Option<String>,
    /// Why something of the lists and switches is not in force, if something is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists_problem: Option<String>,
    /// The control plane, where rules come from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlane>,
}

/// What is known of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControlPlane {
    /// Whether it can be reached.
    pub link: Link,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// The last of its versions that was good, in its own words, if there was one.
    pub version: Option<String>,
    /// When it last sent anything, in milliseconds since 1970, if it did.
    pub heard_ms: Option<u64>,
    /// Why it can't be reached, if it can't.
    pub problem: Option<String>,
}

/// Whether a control plane can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Not now, or nothing is known yet: it is tried again and again.
    #[default]
    Connecting,
    /// It is.
    Connected,
}

impl RulesState {
    /// Whatever is amiss.
    pub fn problems(&self) -> Option<String> {
        let of_plane = self.control_plane.as_ref().and_then(|plane| plane.problem.as_deref());
        let all = [self.problem.as_deref(), self.lists_problem.as_deref(), of_plane];
        let told: Vec<&str> = all.into_iter().flatten().collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// What this instance enforces; clones tell the same. Written by whoever puts rules in force.
#[derive(Clone, Debug, Default)]
pub struct RulesStatus(Arc<ArcSwap<RulesState>>);

impl RulesStatus {
    /// What it is now.
    pub fn now(&self) -> Arc<RulesState> {
        self.0.load_full()
    }

    /// Changes it.
    pub fn update(&self, change: impl Fn(&mut RulesState)) {
        self.0.rcu(|state| {
            let mut state = RulesState::clone(state);
            change(&mut state);
            state
        });
    }
}
