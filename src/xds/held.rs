//! Resources that are compiled again when the overlay changes.

use std::sync::Arc;

use tollgate_rules::config::{Fingerprint, OverlaySlot};

use super::{
    RulesSink,
    resource::{Resource, fingerprint_of, load_resources},
};

/// Resources of the last response, and of the last accepted one. Empty without an overlay.
#[derive(Debug, Default)]
pub(crate) struct HeldResources {
    latest: Option<Arc<[Resource]>>,
    accepted: Option<Arc<[Resource]>>,
}

impl HeldResources {
    /// Holds the resources of a response.
    pub(super) fn hold(&mut self, resources: Vec<Resource>, is_accepted: bool) {
        let resources: Arc<[Resource]> = resources.into();
        if is_accepted {
            self.accepted = Some(Arc::clone(&resources));
        }
        self.latest = Some(resources);
    }

    /// The resources, the latest first.
    fn candidates(&self) -> Vec<Arc<[Resource]>> {
        let mut candidates: Vec<_> = self.latest.iter().chain(&self.accepted).map(Arc::clone).collect();
        candidates.dedup_by(|one, other| Arc::ptr_eq(one, other));
        candidates
    }
}

impl RulesSink {
    /// Fingerprint of resources under the active overlay.
    pub(super) fn fingerprint_of(&self, resources: &[Resource]) -> Fingerprint {
        let overlay = self.options.overlay.and_then(OverlaySlot::get);
        let fingerprint = fingerprint_of(resources);
        overlay.map_or(fingerprint, |overlay| fingerprint.under(overlay.fingerprint()))
    }

    /// Compiles the resources of the last response again, and activates their rules; if they are invalid, those of the last
    /// accepted one. Blocks.
    pub(crate) fn recompile(&self) {
        let mut held = self.held.lock();
        let mut problem = None;
        for resources in held.candidates() {
            match load_resources(&resources, fingerprint_of(&resources), self.options) {
                Ok(loaded) => {
                    (self.apply)(Ok(loaded));
                    held.accepted = Some(resources);
                    return;
                }
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        drop(held);
        if let Some(error) = problem {
            (self.apply)(Err(error.into()));
        }
    }
}
