//! What `rate_limit` and `defaults` state.

use std::rc::Rc;

use super::{
    descriptor::Compiler,
    parameters::{Chosen, Reporter},
};
use crate::{
    algorithm::{Parameters, Policy},
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
    },
    quota::{Quota, Unit, Window},
    rules::Limit,
};

/// What a file states for all of its limits that don't state it themselves.
///
/// `unit`, `unit_multiplier` and `window` say one thing together, so a limit that states `unit` or `window`
/// takes none of the three from here; one that states `unit_multiplier` alone takes the unit. `burst` is taken
/// by limits that use a token bucket. An `unlimited` limit takes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults {
    pub(super) algorithm: Option<Chosen>,
    burst: Option<u32>,
    requests_per_unit: Option<u32>,
    unit: Option<Unit>,
    window: Option<Window>,
}

impl Defaults {
    pub(super) fn read(file: &str, raw: &RawRateLimit, problems: &mut Problems) -> Self {
        let path = Path::Root.key("defaults");
        let mut reporter = Reporter { file, problems };
        let algorithm = reporter.algorithm(&raw.algorithm, &path);
        let burst = raw.burst.stated().filter(|burst| reporter.burst(burst, &path));
        let window = reporter.length(raw, None, &path);
        Self {
            algorithm,
            burst: burst.map(|burst| burst.value),
            requests_per_unit: raw.requests_per_unit.stated().map(|stated| stated.value),
            unit: raw.unit.text().parse().ok(),
            window: window.stated().map(|stated| stated.value),
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
        ] {
            if let Some(at) = at {
                self.error(at, &path.key(key), "should not stand beside `unlimited: true`");
            }
        }
    }

    fn quota(&mut self, raw: &Stated<RawRateLimit>, path: &Path<'_>) -> Option<Limit> {
        let defaults = self.defaults;
        let mut reporter = Reporter { file: self.file, problems: &mut *self.problems };
        let RawRateLimit { algorithm, burst, requests_per_unit, .. } = &raw.value;
        let chosen = match algorithm {
            Field::Absent => Some(defaults.algorithm.map(|default| default.algorithm).unwrap_or_default()),
            stated => reporter.algorithm(stated, path).map(|chosen| chosen.algorithm),
        };
        let window = match reporter.length(&raw.value, defaults.unit, path) {
            Field::Stated(window) => Some(window.value),
            Field::Wrong => None,
            Field::Absent => defaults.window.or_else(|| reporter.no_window(raw.at, path)),
        };
        let limit = match requests_per_unit {
            Field::Stated(limit) => Some(limit.value),
            Field::Wrong => None,
            Field::Absent => defaults.requests_per_unit.or_else(|| reporter.no_limit(raw.at, path)),
        };
        // Each of them is looked at before one that is wrong ends it.
        let capacity = chosen.and_then(|chosen| reporter.capacity(chosen, burst, defaults.burst, path));
        let (chosen, capacity) = (chosen?, capacity?);
        let quota = Quota { limit: limit?, window: window? };
        let parameters = Parameters { burst: capacity, ..Parameters::default() };
        match Policy::new(chosen, quota, &parameters) {
            Ok(policy) => Some(Limit::Quota { quota, policy }),
            Err(error) => {
                let at = burst.stated().map_or(raw.at, |burst| burst.at);
                self.error(at, path, format!("this bucket fills too slowly: {error}"));
                None
            }
        }
    }
}
