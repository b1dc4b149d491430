//! Compilation of `rate_limit` and `defaults`.

use std::time::Duration;

use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Policy, PolicyError},
    quota::{Quota, Unit, Window},
};

use super::{
    descriptor::Compiler,
    parameters::{AlgorithmParameters, Reporter},
    window::{check_calendar, in_calendar, window_of_leases},
};
use crate::{
    Limit, OnShareExhausted, OnStoreError, Rule, Scope,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
        vocabulary::Mapping as _,
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
    pub(super) algorithm: Option<Stated<Algorithm>>,
    parameters: AlgorithmParameters,
    pub(super) states_overdraft: bool,
    requests_per_unit: Option<Stated<u64>>,
    unit: Option<Unit>,
    window: Option<Window>,
    pub(super) sync: Option<Stated<SyncMode>>,
    pub(super) scope: Option<Stated<Scope>>,
    pub(super) on_share_exhausted: Option<Stated<OnShareExhausted>>,
    pub(super) on_store_error: Option<Stated<OnStoreError>>,
    pub(super) retry_after_spread: Option<Stated<Duration>>,
}

impl Defaults {
    pub(super) fn read(file: &str, raw: &RawRateLimit, problems: &mut Problems) -> Self {
        let path = Path::Root.key("defaults");
        let mut reporter = Reporter { file, problems };
        Self {
            algorithm: reporter.word(&raw.algorithm, &path.key("algorithm")),
            parameters: reporter.default_parameters(raw, &path),
            window: reporter.window(raw, None, &path).flatten(),
            states_overdraft: raw.overdraft.is_present(),
            requests_per_unit: raw.requests_per_unit.stated().copied(),
            unit: raw.unit.text().parse().ok(),
            sync: reporter.word(&raw.sync, &path.key("sync")),
            scope: reporter.word(&raw.scope, &path.key("scope")),
            on_share_exhausted: reporter.word(&raw.on_share_exhausted, &path.key("on_share_exhausted")),
            on_store_error: reporter.word(&raw.on_store_error, &path.key("on_store_error")),
            retry_after_spread: reporter.retry_after_spread(&raw.retry_after_spread, &path),
        }
    }

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
            algorithm: Some(stated(policy.algorithm().stated())),
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
        if raw.value.unlimited.valid()?.is_some_and(|unlimited| unlimited.value) {
            self.check_unlimited(&raw.value, path);
            return Some((Limit::Unlimited, false));
        }
        self.quota(raw, path)
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
            Field::Absent => Some(defaults.algorithm.map(|default| default.value).unwrap_or_default()),
            stated => reporter.word(stated, &path.key("algorithm")).map(|chosen| chosen.value),
        };
        let limit = stated.requests_per_unit.valid().and_then(|limit| {
            let limit = limit.or(defaults.requests_per_unit.as_ref()).map(|limit| limit.value);
            limit.or_else(|| reporter.no_limit(*at, path))
        });
        let parameters =
            chosen.and_then(|chosen| reporter.parameters(chosen, stated, &defaults.parameters, path));
        let window = match chosen {
            Some(algorithm) if algorithm.holds_permits() => {
                let is_valid = reporter.check_no_window(stated, path);
                parameters.filter(|_| is_valid).map(|(parameters, _)| window_of_leases(parameters.lease_ttl))
            }
            chosen => reporter.window(stated, defaults.unit, path).and_then(|window| {
                // With an invalid algorithm, the one that was meant may need no window.
                window.or(defaults.window).or_else(|| chosen.and_then(|_| reporter.no_window(*at, path)))
            }),
        };
        let in_calendar = window.and_then(|window| in_calendar(&mut reporter, raw, window, path));
        // All keys are checked before the first invalid one ends the compilation.
        let quota = Quota { limit: limit?, window: in_calendar? };
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
        let Stated { at: whole, value: stated } = raw;
        let AlgorithmParameters { burst, min_interval, overdraft, .. } = self.defaults.parameters;
        let number = self.defaults.requests_per_unit.map(|limit| limit.at);
        let (key, default, problem) = match error {
            PolicyError::TooSlow => ("burst", burst.map(|burst| burst.at), "this bucket refills too slowly"),
            PolicyError::TooDeep => {
                ("max_debt", overdraft.max_debt.map(|debt| debt.at), "this debt refills too slowly")
            }
            PolicyError::TooFast => ("requests_per_unit", number, "this bucket refills too fast"),
            PolicyError::TooMany | PolicyError::TooLarge => ("requests_per_unit", number, "is too large"),
            PolicyError::TooRare => ("min_interval", min_interval.map(|interval| interval.at), "is too long"),
        };
        match stated.at(key) {
            Some(at) => self.error(at, &path.key(key), format!("{problem}; {error}")),
            // A key that the limit omits is from the defaults.
            None => {
                let line = default.map_or(whole.line(), |at| at.line());
                let message = format!("`{key}` of `defaults` at {}:{line}: {problem}; {error}", self.file);
                self.error(*whole, path, message);
            }
        }
    }
}
