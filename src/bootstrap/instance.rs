//! Parts that all components of an instance share.

use std::sync::Arc;

use tollgate_control::{Control, RulesStatus};
use tollgate_limiter::ActiveRules;

use super::activation::Activator;
use crate::readiness::Readiness;

/// Rules, control store and readiness of the instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) readiness: Readiness,
    pub(super) rules: Arc<ActiveRules>,
    pub(super) control: Control,
    pub(super) status: RulesStatus,
}

impl Instance {
    /// The instance whose rules `activator` activates.
    pub(super) fn new(readiness: Readiness, control: Control, activator: &Activator) -> Self {
        let (rules, status) = (Arc::clone(&activator.rules), activator.status.clone());
        Self { readiness, rules, control, status }
    }
}
