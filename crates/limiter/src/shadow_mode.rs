//! Shadow mode: limits that are counted and deny nothing, and requests that pass although a limit denies them.

use tollgate_core::descriptor::Entry;
use tollgate_metrics::StripedCounter;
use tollgate_rules::{Domain, Rule, SwitchMode, Switched};

use crate::Modes;

pub(super) static SHADOW_MODE_PASSES: StripedCounter = StripedCounter::new(
    "tollgate_shadow_mode_passes_total",
    "Requests that passed only because of the process's shadow mode.",
)
.at_zero();

/// Side of a counted key, where a limit is enforced for a share of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The limit denies.
    Enforced,
    /// The limit is in shadow mode.
    Shadow,
}

/// Whether a rule is in shadow mode: by its switch, by the side of the key, or by itself.
pub(super) fn is_shadow(rule: &Rule, switch: Option<SwitchMode>, side: Option<Side>) -> bool {
    switch.is_some() || side.map_or(rule.shadow_mode, |side| side == Side::Shadow)
}

/// The side of the key that a request with these entries counts under, if the rule is enforced for a share of its keys.
pub(super) fn side(domain: &Domain, switched: &Switched, rule: &Rule, entries: &[Entry<'_>]) -> Option<Side> {
    let share = switched.share_of(rule)?;
    Some(if share.contains(rule.counted_key(&domain.name, entries)) { Side::Enforced } else { Side::Shadow })
}

/// Whether a denied request passes because of the process's shadow mode; counts it.
pub(super) fn passes(modes: Modes) -> bool {
    if modes.shadow {
        SHADOW_MODE_PASSES.increment(0);
    }
    modes.shadow
}

/// Requests that passed so far only because of the process's shadow mode.
pub fn shadow_mode_passes() -> u64 {
    let [total] = SHADOW_MODE_PASSES.totals();
    total
}
