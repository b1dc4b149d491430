//! Status of the rules that this instance enforces.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;

use crate::{CopyState, bounds::truncated};

tollgate_core::named! {
    /// Source of the rules.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RulesSource {
        /// Files in a directory.
        #[default]
        Directory = "directory",
        /// The Redis that instances share.
        Redis = "redis",
        /// This process, persisted in a file if one is set.
        Memory = "memory",
        /// An xDS control plane.
        Xds = "xds",
    }
}

impl RulesSource {
    /// Whether operators make numbered versions of the rules there.
    pub const fn has_versions(self) -> bool {
        match self {
            Self::Redis | Self::Memory => true,
            Self::Directory | Self::Xds => false,
        }
    }
}

/// Rules, lists and switches that this instance enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RulesState {
    pub source: RulesSource,
    /// The active version, if versions have numbers.
    pub version: Option<u64>,
    /// Fingerprint of the active rules.
    pub fingerprint: String,
    /// Time when the rules were activated, in milliseconds since 1970.
    pub since_ms: u64,
    /// Revision of the active records.
    pub generation: u64,
    /// Generation of the region table, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_generation: Option<u64>,
    /// Reason why newer rules are not active, if there are any.
    pub problem: Option<String>,
    /// Reason why some records are not active, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records_problem: Option<String>,
    /// Rules that are copied from another region, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyState>,
    /// Status of the control plane, if rules come from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlane>,
}

/// Status of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControlPlane {
    pub link: Link,
    /// Time of the last connect or disconnect, in milliseconds since 1970.
    pub since_ms: u64,
    /// The last valid version, as named by the control plane.
    pub version: Option<String>,
    /// Time of its last response, in milliseconds since 1970.
    pub heard_ms: Option<u64>,
    /// Reason why it is unreachable, if so.
    pub problem: Option<String>,
}

/// State of the connection to a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Not connected; connecting is retried.
    #[default]
    Connecting,
    Connected,
}

impl RulesState {
    /// Returns all problems, joined.
    pub fn problems(&self) -> Option<String> {
        let of_plane = self.control_plane.as_ref().and_then(|plane| plane.problem.as_deref());
        let all = [self.problem.as_deref(), self.records_problem.as_deref(), of_plane];
        let problems: Vec<&str> = all.into_iter().flatten().collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// Shared status of this instance, updated when rules, lists or switches are activated.
#[derive(Clone, Debug, Default)]
pub struct RulesStatus(Arc<ArcSwap<RulesState>>);

impl RulesStatus {
    /// Returns the current status.
    pub fn now(&self) -> Arc<RulesState> {
        self.0.load_full()
    }

    /// Sets one of the problems, truncated. Returns it if it differs from the one before.
    pub(crate) fn set_problem(
        &self,
        of: fn(&mut RulesState) -> &mut Option<String>,
        problem: Option<String>,
    ) -> Option<String> {
        let problem = problem.map(truncated);
        let mut is_new = false;
        self.update(|state| {
            is_new = *of(state) != problem;
            of(state).clone_from(&problem);
        });
        problem.filter(|_| is_new)
    }

    /// Updates the status.
    pub fn update(&self, mut change: impl FnMut(&mut RulesState)) {
        self.0.rcu(|state| {
            let mut state = RulesState::clone(state);
            change(&mut state);
            state
        });
    }
}
