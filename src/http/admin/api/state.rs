//! State of the API.

use std::{path::PathBuf, sync::Arc};

use tollgate_control::{Control, ControlError, RulesStatus};
use tollgate_limiter::{ActiveRules, CounterInspector, Replicas};
use tollgate_rules::config::Options;
use tollgate_store::MemoryStore;

use super::{error::ApiError, limits::ApiLimits};
use crate::{
    fleet::FleetView, readiness::Readiness, regions::Regions, rollouts::RolloutView, service::RequestBounds,
};

/// Dependencies of the API.
#[derive(Debug)]
pub struct ApiParts {
    /// Stored versions, lists, switches and the audit log.
    pub control: Control,
    /// Source and version of the active rules.
    pub status: RulesStatus,
    /// Active rules and overrides.
    pub rules: Arc<ActiveRules>,
    /// Options for loading rules.
    pub options: Options,
    /// Bounds of the descriptors of a request.
    pub bounds: RequestBounds,
    /// Directory of rules that have no versions.
    pub directory: PathBuf,
    /// Phase of the process.
    pub readiness: Readiness,
    /// Counters, on the runtime that serves the API.
    pub counters: CounterInspector,
    /// Traffic of all instances.
    pub(crate) fleet: FleetView,
    /// Comparisons with candidates.
    pub(crate) rollouts: RolloutView,
    /// Description of the counters' store.
    pub store: StoreInfo,
    /// The regions, with a region table.
    pub regions: Option<Regions>,
}

/// Description of the counters' store.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    /// `memory` or `redis`.
    pub kind: &'static str,
    /// Its address, without secrets.
    pub address: String,
    /// The counters of this process.
    pub memory: MemoryStore,
    /// The number of instances that share the limits, where there can be more than one.
    pub replicas: Option<Replicas>,
}

/// Dependencies of the API, and its own state.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) parts: ApiParts,
    pub(super) limits: ApiLimits,
    pub(super) started_at_ms: u64,
    /// Whether callers need a token.
    pub(super) is_token_required: bool,
}

impl Api {
    /// Whether the rules have versions.
    pub(super) fn has_versions(&self) -> bool {
        self.parts.status.now().source.has_versions()
    }

    /// Whether versions of the rules are made through this API.
    pub(super) fn is_editable(&self) -> bool {
        self.require_editable().is_ok()
    }

    /// Returns an error if the rules can't be edited.
    pub(super) fn require_editable(&self) -> Result<(), ApiError> {
        match self.has_versions() {
            true => Ok(self.parts.control.require_writable()?),
            false => Err(ControlError::ReadOnly.into()),
        }
    }
}
