//! What the API tells about and changes.

use std::{path::PathBuf, sync::Arc};

use super::heavy::Turns;
use crate::{
    config::Options,
    control::{Control, RulesStatus},
    limiter::{Counters, Replicas},
    readiness::Readiness,
    rules::Snapshot,
    store::MemoryStore,
};

/// What the API tells about and changes.
#[derive(Debug)]
pub struct ApiParts {
    /// Versions, lists, switches, and what was done to them.
    pub control: Control,
    /// Which of them is enforced here.
    pub status: RulesStatus,
    /// What is enforced here.
    pub rules: Arc<Snapshot>,
    /// How rules are read.
    pub options: Options,
    /// Where the rules are that have no versions.
    pub directory: PathBuf,
    /// Where this process stands in its life.
    pub readiness: Readiness,
    /// The counters, on the runtime that this is served on.
    pub counters: Counters,
    /// What is known of where they are.
    pub store: StoreFacts,
}

/// What is known of where counters are.
#[derive(Clone, Debug)]
pub struct StoreFacts {
    /// `memory` or `redis`.
    pub kind: &'static str,
    /// Where that is, without secrets.
    pub address: String,
    /// The counters that are in this process.
    pub memory: MemoryStore,
    /// How many instances share the limits, where there can be others.
    pub replicas: Option<Replicas>,
}

/// The same, with what is kept between calls.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) parts: ApiParts,
    pub(super) turns: Turns,
    pub(super) started_at_ms: u64,
    /// Whether callers have to show who they are.
    pub(super) is_token_required: bool,
}
