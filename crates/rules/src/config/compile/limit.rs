//! What `rate_limit` and `defaults` state.

use std::rc::Rc;

use super::{
    algorithm_parameters::{Particulars, window_of_leases},
    descriptor::Compiler,
    parameters::{Chosen, Reporter},
};
use crate::{
    Limit, OnStoreError,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
    },
};
use tollgate_core::{
    SyncMode,
    algorithm::{Policy, PolicyError},
    quota::{Quota, Unit, Window},
};

/// What a file states for all of its limits that don't state it themselves.
///
/// `unit`, `unit_multiplier` and `window` say one thing together, so a limit that states `unit` or `window`
/// takes none of the three from here; one that states `unit_multiplier` alone takes the unit, and a concurrency
/// limit, which has no window, takes nothing of it. What goes with one algorithm is taken by limits that use it, and
/// `sync: leased` by those that can be leased. An `unlimited` limit takes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults {
    pub(super) algorithm: Option<Chosen>,
    particulars: Particulars,
    requests_per_unit: Option<Stated<u32>>,
    unit: Option<Unit>,
    window: Option<Window>,
    pub(super) sync: Option<Stated<SyncMode>>,
    pub(super) on_store_error: Option<Stated<OnStoreError>>,
}

impl Defaults {
    pub(super) fn read(file: &str, raw: &RawRateLimit, problems: &mut Problems) -> Self {
        let path = Path::Root.key("defaults");
        let mut reporter = Reporter { file, problems };
        let algorithm = reporter.algorithm(&raw.algorithm, &path);
        let particulars = reporter.particulars(raw, &path);
        let window = reporter.length(raw, None, &path);
        Self {
            algorithm,
            particulars,
            requests_per_unit: raw.requests_per_unit.stated().copied(),
            unit: raw.unit.text().parse().ok(),
            window: window.stated().map(|stated| stated.value),
            sync: reporter.sync(&raw.sync, &path),
            on_store_error: reporter.on_store_error(&raw.on_store_error, &path),
        }
    }
}

impl Compiler<'_> {
    /// The limit that a `rate_limit` states, unless it is wrong.
    pub(super) fn limit(&mut self, raw: &Stated<RawRateLimit>, path: &Path<'_>) -> Option<Limit> {
        match &raw.value.unlimited {
            Field::Wrong => None,
            Field::Stated(Stated { value: true, .. }) => {
                self.check_unlimited(&raw.value, path);
                Some(Limit::Unlimited)
            }
            Field::Stated(_) | Field::Absent => self.quota(raw, path),
        }
    }

    /// Reports what makes no sense beside `unlimited`. The reference takes any unit that is none, and a number.
    fn check_unlimited(&mut self, raw: &RawRateLimit, path: &Path<'_>) {
        if let Some(unit) = raw.unit.stated() {
            match unit.value.parse::<Unit>() {
                Ok(_) => self.error(unit.at, &path.key("unit"), "should not stand beside `unlimited: true`"),
                Err(_) => self.warning(unit.at, &path.key("unit"), "has no effect beside `unlimited: true`"),
            }
        }
        if let Some(number) = raw.requests_per_unit.stated() {
            let path = path.key("requests_per_unit");
            self.warning(number.at, &path, "has no effect beside `unlimited: true`");
        }
        let at = |text: &Field<Rc<str>>| text.stated().map(|stated| stated.at);
        let number_at = |number: &Field<u32>| number.stated().map(|stated| stated.at);
        for (key, at) in [
            ("window", at(&raw.window)),
            ("unit_multiplier", number_at(&raw.unit_multiplier)),
            ("algorithm", at(&raw.algorithm)),
            ("burst", number_at(&raw.burst)),
            ("min_interval", at(&raw.min_interval)),
            ("lease_ttl", at(&raw.lease_ttl)),
            ("sync", at(&raw.sync)),
            ("on_store_error", at(&raw.on_store_error)),
        ] {
            if let Some(at) = at {
                self.error(at, &path.key(key), "should not stand beside `unlimited: true`");
            }
        }
    }

    fn quota(&mut self, raw: &Stated<RawRateLimit>, path: &Path<'_>) -> Option<Limit> {
        let defaults = self.defaults;
        let mut reporter = Reporter { file: self.file, problems: &mut *self.problems };
        let Stated { at, value: stated } = raw;
        let chosen = match &stated.algorithm {
            Field::Absent => Some(defaults.algorithm.map(|default| default.algorithm).unwrap_or_default()),
            stated => reporter.algorithm(stated, path).map(|chosen| chosen.algorithm),
        };
        let limit = match &stated.requests_per_unit {
            Field::Stated(limit) => Some(limit.value),
            Field::Wrong => None,
            Field::Absent => {
                let default = defaults.requests_per_unit.map(|default| default.value);
                default.or_else(|| reporter.no_limit(*at, path))
            }
        };
        let parameters =
            chosen.and_then(|chosen| reporter.parameters(chosen, stated, &defaults.particulars, path));
        let window = match chosen {
            Some(algorithm) if algorithm.holds_permits() => {
                let has_none = reporter.has_no_window(stated, path);
                parameters.filter(|_| has_none).map(|parameters| window_of_leases(parameters.lease_ttl))
            }
            chosen => match reporter.length(stated, defaults.unit, path) {
                Field::Stated(window) => Some(window.value),
                Field::Wrong => None,
                // It may be that the algorithm which was meant needs none.
                Field::Absent => {
                    defaults.window.or_else(|| chosen.and_then(|_| reporter.no_window(*at, path)))
                }
            },
        };
        // Each of them is looked at before one that is wrong ends it.
        let quota = Quota { limit: limit?, window: window? };
        match Policy::new(chosen?, quota, &parameters?) {
            Ok(policy) => Some(Limit::Quota { quota, policy }),
            Err(error) => {
                self.refuse(error, raw, path);
                None
            }
        }
    }

    /// Reports a limit that can't be enforced at the key which makes it so.
    fn refuse(&mut self, error: PolicyError, raw: &Stated<RawRateLimit>, path: &Path<'_>) {
        let at = |number: &Field<u32>| number.stated().map(|stated| stated.at);
        let Stated { at: whole, value: stated } = raw;
        let Particulars { burst, min_interval, .. } = self.defaults.particulars;
        let number = (at(&stated.requests_per_unit), self.defaults.requests_per_unit.map(|limit| limit.at));
        let (key, (own, default), says) = match error {
            PolicyError::TooSlow => {
                ("burst", (at(&stated.burst), burst.map(|burst| burst.at)), "this bucket fills too slowly")
            }
            PolicyError::TooFast => ("requests_per_unit", number, "this bucket fills too fast"),
            PolicyError::TooMany => ("requests_per_unit", number, "is too large"),
            PolicyError::TooRare => {
                let own = stated.min_interval.stated().map(|stated| stated.at);
                ("min_interval", (own, min_interval.map(|interval| interval.at)), "is too long")
            }
        };
        match (own, default) {
            (Some(at), _) => self.error(at, &path.key(key), format!("{says}: {error}")),
            // What the limit does not state it has from there.
            (None, default) => {
                let line = default.map_or(whole.line(), |at| at.line());
                let message = format!("`{key}` of `defaults` at {}:{line}: {says}: {error}", self.file);
                self.error(*whole, path, message);
            }
        }
    }
}
