//! Guardrail of directories: a change that removes all or most of the active rules is refused, unless it is meant.

use tollgate_rules::{Rules, config::Loaded};

/// Number of active rules below which other rules may replace them all: to rename a few is a usual change.
const FEW_RULES: usize = 10;

/// A change that would leave fewer than half of the active rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{missing} of {active} active rules are missing in the changed files; expected at most half of them, \
     --allow-empty or a file .allow-empty in the directory"
)]
pub(super) struct Removal {
    missing: usize,
    active: usize,
}

/// An overlay that would leave nothing of the active one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the changed overlay states nothing; expected files with descriptors, --allow-empty or a file .allow-empty in \
     its directory"
)]
pub(super) struct EmptiedOverlay;

impl Removal {
    /// The removal that replacing `active` by `loaded` would be, unless it is permitted.
    pub(super) fn by(loaded: &Loaded, active: &Rules) -> Option<Self> {
        if loaded.allow_empty {
            return None;
        }
        let (missing, active) = (active.missing_in(&loaded.rules), active.rule_count());
        let lacks_most = |missing: usize| missing > active.saturating_sub(missing);
        let are_replaced =
            active < FEW_RULES && !lacks_most(active.saturating_sub(loaded.rules.rule_count()));
        (lacks_most(missing) && !are_replaced).then_some(Self { missing, active })
    }
}
