//! Compilation of `rate_limit` and `defaults`.

use std::time::Duration;

use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Policy, PolicyError},
    quota::{Quota, Unit, Window},
};

use super::{
    algorithm_parameters::{AlgorithmParameters, window_of_leases},
    calendar::{check_calendar, in_calendar},
    descriptor::Compiler,
    parameters::{ChosenAlgorithm, Reporter},
};
use crate::{
    Limit, OnShareExhausted, OnStoreError, Rule, Scope,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
        yaml::Position,
    },
};

/// Defaults of a file for the keys that its limits omit.
///
/// `unit`, `unit_multiplier` and `window` together state one window, so a limit with `unit` or `window` uses none of the
/// three defaults; one with `unit_multiplier` alone uses the default unit; and a concurrency limit, which has no window,
/// uses none. A parameter of one algorithm applies to limits of that algorithm, and `sync: leased` or `auto` to
/// limits that can be leased. No default applies to an `unlimited` limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults {
    pub(super) algorithm: Option<ChosenAlgorithm>,
    parameters: AlgorithmParameters,
    pub(super) states_overdraft: bool,
    requests_per_unit: Option<Stated<u64>>,
    unit: Option<Unit>,
    window: Option<Window>,
    pub(super) sync: Option<Stated<SyncMode>>,
    pub(super) scope: Option<Stated<Scope>>,
    pub(super) on_share_exhausted: Option<Stated<OnShareExhausted>>,
    pub(super) on_store_error: Option<Stated<OnStoreError>>,
    retry_after_spread: Option<Stated<Duration>>,
}

impl Defaults {
    pub(super) fn read(file: &str, raw: &RawRateLimit, problems: &mut Problems) -> Self {
        let path = Path::Root.key("defaults");
        let mut reporter = Reporter { file, problems };
        let algorithm = reporter.algorithm(&raw.algorithm, &path);
        let parameters = reporter.default_parameters(raw, &path);
        let window = reporter.window(raw, None, &path);
        Self {
            algorithm,
            parameters,
            states_overdraft: raw.overdraft.is_present(),
            requests_per_unit: raw.requests_per_unit.stated().copied(),
            unit: raw.unit.text().parse().ok(),
            window: window.stated().map(|stated| stated.value),
            sync: reporter.sync(&raw.sync, &path),
            scope: reporter.scope(&raw.scope, &path),
            on_share_exhausted: reporter.on_share_exhausted(&raw.on_share_exhausted, &path),
            on_store_error: reporter.on_store_error(&raw.on_store_error, &path),
            retry_after_spread: reporter.retry_after_spread(&raw.retry_after_spread, &path),
        }
    }
}

impl Defaults {
    /// The values of a rule, as defaults of an override of it. An unlimited rule has none.
    pub(super) fn of_rule(rule: &Rule) -> Self {
        fn stated<T>(value: T) -> Stated<T> {
            Stated { at: Position::WHOLE, value }
        }
        // A rule's overdraft is a choice, stated or not.
        let defaults = Self {
            states_overdraft: true,
            on_store_error: rule.on_store_error.map(stated),
            retry_after_spread: rule.retry_after_spread.map(stated),
            ..Self::default()
        };
        let Limit::Quota { quota, policy } = &rule.limit else { return defaults };
        // The window of a concurrency limit is not one.
        let window = Some(quota.window).filter(|_| !policy.algorithm().holds_permits());
        Self {
            algorithm: Some(ChosenAlgorithm { algorithm: policy.algorithm().stated(), at: Position::WHOLE }),
            parameters: AlgorithmParameters::of_rule(rule, *quota, policy),
            requests_per_unit: Some(stated(quota.limit)),
            unit: window.map(Window::unit),
            window,
            sync: Some(stated(rule.sync)),
            scope: Some(stated(rule.scope)),
            on_share_exhausted: Some(stated(rule.on_share_exhausted)),
            ..defaults
        }
    }
}

impl Compiler<'_> {
    /// Compiles a `rate_limit`, and whether it has an overdraft; `None` if it is invalid.
    pub(super) fn limit(&mut self, raw: &Stated<RawRateLimit>, path: &Path<'_>) -> Option<(Limit, bool)> {
        match &raw.value.unlimited {
            Field::Invalid => None,
            Field::Stated(Stated { value: true, .. }) => {
                self.check_unlimited(&raw.value, path);
                Some((Limit::Unlimited, false))
            }
            Field::Stated(_) | Field::Absent => self.quota(raw, path),
        }
    }

    /// Reports keys that contradict `unlimited`. envoyproxy/ratelimit accepts an invalid unit, and a number.
    fn check_unlimited(&mut self, raw: &RawRateLimit, path: &Path<'_>) {
        if let Some(unit) = raw.unit.stated() {
            match unit.value.parse::<Unit>() {
                Ok(_) => self.error(
                    unit.at,
                    &path.key("unit"),
                    "contradicts `unlimited: true`; remove one of them",
                ),
                Err(_) => self.warning(unit.at, &path.key("unit"), "has no effect beside `unlimited: true`"),
            }
        }
        if let Some(number) = raw.requests_per_unit.stated() {
            let path = path.key("requests_per_unit");
            self.warning(number.at, &path, "has no effect beside `unlimited: true`");
        }
        // `unit` and `requests_per_unit` are reported above.
        const COMPATIBLE: [&str; 5] = ["unlimited", "name", "inherit", "unit", "requests_per_unit"];
        for (key, at) in raw.stated_keys().filter(|(key, _)| !COMPATIBLE.contains(key)) {
            self.error(at, &path.key(key), "contradicts `unlimited: true`; remove one of them");
        }
    }

    pub(super) fn quota(&mut self, raw: &Stated<RawRateLimit>, path: &Path<'_>) -> Option<(Limit, bool)> {
        let defaults = self.defaults;
        let mut reporter = self.reporter();
        let Stated { at, value: stated } = raw;
        let chosen = match &stated.algorithm {
            Field::Absent => Some(defaults.algorithm.map(|default| default.algorithm).unwrap_or_default()),
            stated => reporter.algorithm(stated, path).map(|chosen| chosen.algorithm),
        };
        let limit = match &stated.requests_per_unit {
            Field::Stated(limit) => Some(limit.value),
            Field::Invalid => None,
            Field::Absent => {
                let default = defaults.requests_per_unit.map(|default| default.value);
                default.or_else(|| reporter.no_limit(*at, path))
            }
        };
        let parameters =
            chosen.and_then(|chosen| reporter.parameters(chosen, stated, &defaults.parameters, path));
        let window = match chosen {
            Some(algorithm) if algorithm.holds_permits() => {
                let is_valid = reporter.check_no_window(stated, path);
                parameters.filter(|_| is_valid).map(|(parameters, _)| window_of_leases(parameters.lease_ttl))
            }
            chosen => match reporter.window(stated, defaults.unit, path) {
                Field::Stated(window) => Some(window.value),
                Field::Invalid => None,
                // With an invalid algorithm, the one that was meant may need no window.
                Field::Absent => {
                    defaults.window.or_else(|| chosen.and_then(|_| reporter.no_window(*at, path)))
                }
            },
        };
        let window = window.and_then(|window| in_calendar(&mut reporter, raw, window, path));
        // All keys are checked before the first invalid one ends the compilation.
        let quota = Quota { limit: limit?, window: window? };
        let (parameters, is_overdraft) = parameters?;
        match Policy::new(chosen?, quota, &parameters) {
            Ok(policy) => {
                let is_valid = check_calendar(&mut reporter, raw, quota, &policy, path);
                is_valid.then_some((Limit::Quota { quota, policy }, is_overdraft))
            }
            Err(error) => {
                self.report_policy_error(error, raw, path);
                None
            }
        }
    }

    /// Reports a limit that cannot be enforced, at the key that causes the error.
    fn report_policy_error(&mut self, error: PolicyError, raw: &Stated<RawRateLimit>, path: &Path<'_>) {
        let at = |number: &Field<u32>| number.stated().map(|stated| stated.at);
        let Stated { at: whole, value: stated } = raw;
        let AlgorithmParameters { burst, min_interval, overdraft, .. } = self.defaults.parameters;
        let own_limit = stated.requests_per_unit.stated().map(|limit| limit.at);
        let number = (own_limit, self.defaults.requests_per_unit.map(|limit| limit.at));
        let (key, (own, default), problem) = match error {
            PolicyError::TooSlow => {
                ("burst", (at(&stated.burst), burst.map(|burst| burst.at)), "this bucket refills too slowly")
            }
            PolicyError::TooDeep => {
                let default = overdraft.max_debt.map(|debt| debt.at);
                ("max_debt", (at(&stated.max_debt), default), "this debt refills too slowly")
            }
            PolicyError::TooFast => ("requests_per_unit", number, "this bucket refills too fast"),
            PolicyError::TooMany | PolicyError::TooLarge => ("requests_per_unit", number, "is too large"),
            PolicyError::TooRare => {
                let own = stated.min_interval.stated().map(|stated| stated.at);
                ("min_interval", (own, min_interval.map(|interval| interval.at)), "is too long")
            }
        };
        match (own, default) {
            (Some(at), _) => self.error(at, &path.key(key), format!("{problem}; {error}")),
            // A key that the limit omits is from the defaults.
            (None, default) => {
                let line = default.map_or(whole.line(), |at| at.line());
                let message = format!("`{key}` of `defaults` at {}:{line}: {problem}; {error}", self.file);
                self.error(*whole, path, message);
            }
        }
    }

    /// Spread of the times at which a limit's clients return: its own, else the default. A concurrency limit has none: a
    /// permit may be released at any moment.
    pub(super) fn retry_after_spread(
        &mut self,
        raw: &RawRateLimit,
        limit: Option<&Limit>,
        path: &Path<'_>,
    ) -> Option<Duration> {
        let stated = self.reporter().retry_after_spread(&raw.retry_after_spread, path);
        match (limit, stated) {
            // Beside `unlimited`, the key was reported.
            (None | Some(Limit::Unlimited), _) => None,
            (Some(Limit::Quota { policy, .. }), stated) if policy.algorithm().holds_permits() => {
                if let Some(Stated { at, .. }) = stated {
                    let message = "is not a key of concurrency, which denies for a second at a time; expected a \
                                   limit with a window";
                    self.error(at, &path.key("retry_after_spread"), message);
                }
                None
            }
            (Some(Limit::Quota { .. }), stated) => {
                stated.or(self.defaults.retry_after_spread).map(|stated| stated.value)
            }
        }
    }

    /// Synchronization of a limit's counters: its own, else the default if the algorithm supports it. `None` if the own one
    /// is invalid; checked also if the limit is invalid.
    pub(super) fn sync(
        &mut self,
        raw: &RawRateLimit,
        limit: Option<&Limit>,
        path: &Path<'_>,
    ) -> Option<SyncMode> {
        let algorithm = match limit {
            Some(Limit::Quota { policy, .. }) => Some(policy.algorithm()),
            // A `sync` beside `unlimited` was reported.
            Some(Limit::Unlimited) => return Some(SyncMode::Strict),
            None => None,
        };
        match &raw.sync {
            Field::Invalid => None,
            Field::Absent => {
                let can_be_leased = algorithm.is_none_or(|algorithm| algorithm.can_be_leased());
                let default = self.defaults.sync.filter(|_| can_be_leased);
                Some(default.map(|default| default.value).unwrap_or_default())
            }
            field => {
                let Stated { at, value } = self.reporter().sync(field, path)?;
                let path = path.key("sync");
                let Some(algorithm) = algorithm.filter(|algorithm| !algorithm.can_be_leased()) else {
                    if value.may_lease() {
                        self.domain.leased.push((self.site(at, &path), value));
                    }
                    return Some(value);
                };
                let name = match algorithm {
                    Algorithm::Budget => "a limit with `reserve`",
                    algorithm => algorithm.name(),
                };
                match value {
                    SyncMode::Strict => {}
                    SyncMode::Leased => {
                        self.error(at, &path, format!("{name} cannot be leased; expected `strict`"));
                        return None;
                    }
                    SyncMode::Auto => {
                        let message = format!(
                            "works as `strict`: {name} cannot be leased, so each request is a call to the store"
                        );
                        self.warning(at, &path, message);
                    }
                }
                Some(SyncMode::Strict)
            }
        }
    }
}
