//! Merging of limits: the keys that one states, and the others of the limit below it.

use std::rc::Rc;

use tollgate_core::algorithm::Algorithm;

use crate::config::raw::{Field, RawRateLimit, Stated};

/// Keys of a limit that identify it or concern others.
const IDENTITY: [&str; 3] = ["name", "replaces", "inherit"];

/// Parameters of one algorithm, which another one has no use for. An overdraft is not among them: a limit that loses it
/// loses charges, so that is an error.
const PARAMETERS: [&str; 6] = ["burst", "min_interval", "lease_ttl", "carry", "reserve", "notify"];

/// Whether a limit takes the identity of the one below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Equal limits.
    Kept,
    /// Different limits.
    Own,
}

/// Fills the keys that `top` omits from `base`. As with the defaults of a file, `unit`, `unit_multiplier` and `window`
/// state one window together, here with `timezone` and `anchor`, and a parameter applies to limits of its algorithm. `default` is the algorithm of limits
/// that state none.
pub(super) fn fill(top: &mut RawRateLimit, base: &RawRateLimit, default: &str, identity: Identity) {
    let stated = Taken::new(top, base, default, identity);
    top.fill(base, |key| stated.takes(key));
}

/// Algorithm of limits that state none, by the defaults of their file.
pub(super) fn default_algorithm(defaults: &RawRateLimit) -> Rc<str> {
    match defaults.algorithm.text() {
        "" => Algorithm::default().name().into(),
        name => name.into(),
    }
}

/// Keys that a limit takes from another one.
struct Taken {
    identity: Identity,
    is_unlimited: bool,
    is_limited: bool,
    /// Whether the algorithm is the one of the limit below.
    has_same_algorithm: bool,
    algorithm: Option<Algorithm>,
    states_window: bool,
    states_multiplier: bool,
    ends_overdraft: bool,
}

impl Taken {
    fn new(top: &RawRateLimit, base: &RawRateLimit, default: &str, identity: Identity) -> Self {
        let name = match base.algorithm.text() {
            "" => default,
            name => name,
        };
        let own = top.algorithm.text();
        let flag = |field: &Field<bool>, expected| matches!(field, Field::Stated(Stated { value, .. }) if *value == expected);
        Self {
            identity,
            is_unlimited: flag(&top.unlimited, true),
            is_limited: flag(&top.unlimited, false) || top.requests_per_unit.is_present(),
            has_same_algorithm: !top.algorithm.is_present() || own == name,
            algorithm: Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == own),
            states_window: top.window.is_present() || top.unit.is_present(),
            states_multiplier: top.unit_multiplier.is_present(),
            ends_overdraft: flag(&top.overdraft, false),
        }
    }

    fn takes(&self, key: &'static str) -> bool {
        let becomes = |is: fn(Algorithm) -> bool| !self.has_same_algorithm && self.algorithm.is_some_and(is);
        match key {
            key if IDENTITY.contains(&key) => self.identity == Identity::Kept,
            _ if self.is_unlimited => false,
            "unlimited" => !self.is_limited,
            "unit" | "unit_multiplier" | "window" | "timezone" | "anchor" if self.states_window => false,
            "unit" | "unit_multiplier" | "window" if becomes(Algorithm::holds_permits) => false,
            "timezone" | "anchor" => !self.states_multiplier && self.has_same_algorithm,
            "unit_multiplier" | "window" => !self.states_multiplier,
            key if PARAMETERS.contains(&key) && !self.has_same_algorithm => false,
            "max_debt" | "carry" => !self.ends_overdraft,
            "sync" => !becomes(|algorithm| !algorithm.can_be_leased()),
            "retry_after_spread" => !becomes(Algorithm::holds_permits),
            _ => true,
        }
    }
}
