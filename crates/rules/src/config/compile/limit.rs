//! Compilation of `rate_limit` and `defaults`, with the calendar of windows by `timezone` and `anchor`.

use std::time::Duration;

use tollgate_core::SyncMode;
use tollgate_core::algorithm::{Algorithm, Policy, PolicyError};
use tollgate_core::quota::{Quota, Unit, Window};

use super::reporter::Reporter;
use super::{Compiler, parameters::AlgorithmParameters};
use crate::calendar::{CalendarError, calendar};
use crate::config::raw::{Field, RawRateLimit, Stated};
use crate::config::yaml::excerpt;
use crate::config::{problem::Path, vocabulary::Mapping as _};
use crate::{Limit, OnShareExhausted, OnStoreError, Rule, Scope};

/// Defaults of a file for the keys that its limits omit.
///
/// `unit`, `unit_multiplier` and `window` together state one window, so a limit with `unit` or `window` uses none of the
/// three defaults; one with `unit_multiplier` alone uses the default unit; and a concurrency limit, which has no window,
/// uses none. A parameter of one algorithm applies to limits of that algorithm, and `sync: leased` or `auto` to
/// limits that can be leased. No default applies to an `unlimited` limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults {
    pub(super) algorithm: Option<Stated<Algorithm>>,
    pub(super) parameters: AlgorithmParameters,
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
    pub(super) fn read(reporter: &mut Reporter<'_>, raw: &RawRateLimit) -> Self {
        let path = Path::Root.key("defaults");
        Self {
            algorithm: reporter.word(&raw.algorithm, &path.key("algorithm")),
            parameters: reporter.default_parameters(raw, &path),
            window: reporter.window(raw, None, &path).flatten(),
            requests_per_unit: raw.requests_per_unit.stated().copied(),
            unit: Unit::of(raw.unit.text()),
            sync: reporter.word(&raw.sync, &path.key("sync")),
            scope: reporter.word(&raw.scope, &path.key("scope")),
            on_share_exhausted: reporter.word(&raw.on_share_exhausted, &path.key("on_share_exhausted")),
            on_store_error: reporter.word(&raw.on_store_error, &path.key("on_store_error")),
            retry_after_spread: reporter.retry_after_spread(&raw.retry_after_spread, &path),
        }
    }

    /// The values of a rule, as defaults of an override of it. An unlimited rule has none.
    pub(super) fn of_rule(rule: &Rule) -> Self {
        let defaults = Self {
            on_store_error: rule.on_store_error.map(Stated::whole),
            retry_after_spread: rule.retry_after_spread.map(Stated::whole),
            ..Self::default()
        };
        let Limit::Quota { quota, policy } = &rule.limit else { return defaults };
        // The window of a concurrency limit is not one.
        let window = Some(quota.window).filter(|_| !policy.algorithm().holds_permits());
        Self {
            algorithm: Some(Stated::whole(policy.algorithm().stated())),
            parameters: AlgorithmParameters::of_rule(rule, *quota, policy),
            requests_per_unit: Some(Stated::whole(quota.limit)),
            unit: window.map(Window::unit),
            window,
            sync: Some(Stated::whole(rule.sync)),
            scope: Some(Stated::whole(rule.scope)),
            on_share_exhausted: Some(Stated::whole(rule.on_share_exhausted)),
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
        const COMPATIBLE: [&str; 3] = ["unlimited", "name", "inherit"];
        let has_valid_unit = Unit::of(raw.unit.text()).is_some();
        for (key, at) in raw.stated_keys().filter(|(key, _)| !COMPATIBLE.contains(key)) {
            let path = path.key(key);
            if key == "requests_per_unit" || (key == "unit" && !has_valid_unit) {
                self.reporter.warning(at, &path, "has no effect beside `unlimited: true`");
            } else {
                self.reporter.error(at, &path, "contradicts `unlimited: true`; remove one of them");
            }
        }
    }

    pub(super) fn quota(&mut self, raw: &Stated<RawRateLimit>, path: &Path<'_>) -> Option<(Limit, bool)> {
        let defaults = self.defaults;
        let reporter = &mut self.reporter;
        let Stated { at, value: stated } = raw;
        let default = defaults.algorithm.map(|default| default.value).unwrap_or_default();
        let chosen = reporter.word_or(default, &stated.algorithm, &path.key("algorithm"));
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
        let in_calendar = window.and_then(|window| in_calendar(reporter, raw, window, path));
        // All keys are checked before the first invalid one ends the compilation.
        let quota = Quota { limit: limit?, window: in_calendar? };
        let (parameters, is_overdraft) = parameters?;
        match Policy::new(chosen?, quota, &parameters) {
            Ok(policy) => {
                let is_valid = check_calendar(reporter, raw, quota, &policy, path);
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
            Some(at) => self.reporter.error(at, &path.key(key), format!("{problem}; {error}")),
            // A key that the limit omits is from the defaults.
            None => {
                let line = default.map_or(whole.line(), |at| at.line());
                let message =
                    format!("`{key}` of `defaults` at {}:{line}: {problem}; {error}", self.reporter.file);
                self.reporter.error(*whole, path, message);
            }
        }
    }
}

/// Time zone of an `anchor` alone.
const DEFAULT_TIME_ZONE: &str = "UTC";

/// Substitute for the window of a concurrency limit: the time to live of its leases in whole seconds.
pub(super) fn window_of_leases(lease_ttl: Duration) -> Window {
    let seconds = lease_ttl.as_secs().saturating_add(u64::from(lease_ttl.subsec_nanos() > 0));
    let window = u32::try_from(seconds).ok().and_then(|seconds| Window::from_seconds(seconds).ok());
    // The time to live is at most 30 days.
    window.unwrap_or(Window::of(Unit::Month))
}

/// Returns the window, in the calendar that the limit states, if it states one; `None` if that is invalid.
pub(super) fn in_calendar(
    reporter: &mut Reporter<'_>,
    raw: &Stated<RawRateLimit>,
    window: Window,
    path: &Path<'_>,
) -> Option<Window> {
    let RawRateLimit { timezone, anchor, .. } = &raw.value;
    let (zone_at, anchor_at) = match (timezone, anchor) {
        (Field::Absent, Field::Absent) => return Some(window),
        (Field::Invalid, _) | (_, Field::Invalid) => return None,
        _ => (timezone.at(), anchor.at()),
    };
    let key = if zone_at.is_some() { "timezone" } else { "anchor" };
    let at = zone_at.or(anchor_at).unwrap_or(raw.at);
    if window.multiplier().get() != 1 {
        let message = format!("needs windows of a single unit; expected `unit: {}` alone", window.unit());
        return reporter.refuse(at, &path.key(key), message);
    }
    let known = window.calendar();
    let own_zone = timezone.stated().map(|zone| &*zone.value);
    let zone = own_zone.or(known.map(|known| known.time_zone())).unwrap_or(DEFAULT_TIME_ZONE);
    let day = anchor.stated().map(|anchor| &*anchor.value).or(known.and_then(|known| known.anchor()));
    match calendar(window.unit(), zone, day) {
        Ok(calendar) => Some(Window::in_calendar(calendar)),
        Err(error) => {
            let (key, at, text) = match (error, anchor_at) {
                (CalendarError::Unit, _) => (key, at, window.unit().name()),
                (CalendarError::Anchor(_), Some(at)) => ("anchor", at, anchor.text()),
                _ => (key, at, zone),
            };
            reporter.refuse(at, &path.key(key), format!("`{}` {error}", excerpt(text)))
        }
    }
}

/// Reports a limit with windows of a calendar that cannot be enforced. Whether it can.
pub(super) fn check_calendar(
    reporter: &mut Reporter<'_>,
    raw: &Stated<RawRateLimit>,
    quota: Quota,
    policy: &Policy,
    path: &Path<'_>,
) -> bool {
    if quota.window.calendar().is_none() && policy.unused_percent() == 0 {
        return true;
    }
    let own = raw.value.timezone.at().or(raw.value.anchor.at()).unwrap_or(raw.at);
    let (key, at, message) = match policy.algorithm() {
        Algorithm::FixedWindow if policy.max_debt().is_some_and(|debt| debt > quota.limit) => {
            let message = "is more than the limit, but the next window is the last that a debt counts in, of a calendar \
                           or with `unused`; expected at most the limit";
            ("max_debt", raw.value.max_debt.at().unwrap_or(own), message)
        }
        Algorithm::FixedWindow => return true,
        Algorithm::Budget => {
            let message = "cannot be combined with windows of a calendar; expected no `timezone` or `anchor`";
            ("reserve", raw.value.reserve.at().unwrap_or(own), message)
        }
        _ => ("timezone", own, "is a key of fixed windows; expected `algorithm: fixed_window`"),
    };
    reporter.error(at, &path.key(key), message);
    false
}
