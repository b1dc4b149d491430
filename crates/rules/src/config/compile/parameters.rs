//! Parameters and windows of limits, common to `rate_limit` and `defaults`.

use std::{rc::Rc, time::Duration};

use tollgate_core::algorithm::{Algorithm, Parameters, Policy};
use tollgate_core::duration::{parse_micros, parse_seconds};
use tollgate_core::quota::{Quota, Unit, Window};

use super::overdraft::{self, Overdraft, OverdraftDefaults};
use super::reporter::{Reporter, unknown};
use crate::Rule;
use crate::config::raw::{Field, RawRateLimit, Stated};
use crate::config::{problem::Path, vocabulary::Mapping as _, yaml::Position};

const MIN_LEASE_TTL: Duration = Duration::from_secs(1);
const MAX_LEASE_TTL: Duration = Duration::from_secs(Unit::Month.seconds() as u64);

/// Key and the algorithm that uses it.
#[derive(Clone, Copy)]
struct ParameterKey {
    name: &'static str,
    home: Algorithm,
}

const BURST: ParameterKey = ParameterKey { name: "burst", home: Algorithm::TokenBucket };
const MIN_INTERVAL: ParameterKey = ParameterKey { name: "min_interval", home: Algorithm::SlidingWindowLog };
const LEASE_TTL: ParameterKey = ParameterKey { name: "lease_ttl", home: Algorithm::Concurrency };

/// Parameters in `defaults`, for the limits of their algorithms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AlgorithmParameters {
    pub(super) burst: Option<Stated<u32>>,
    pub(super) min_interval: Option<Stated<Duration>>,
    lease_ttl: Option<Stated<Duration>>,
    pub(super) overdraft: OverdraftDefaults,
}

impl AlgorithmParameters {
    /// The parameters of a rule, as defaults of an override of it.
    pub(super) fn of_rule(rule: &Rule, quota: Quota, policy: &Policy) -> Self {
        // A burst as large as the limit is the default, which follows the limit.
        let burst = policy.burst().and_then(|burst| u32::try_from(burst).ok());
        let min_interval = Some(policy.min_interval()).filter(|interval| !interval.is_zero());
        Self {
            burst: burst.filter(|burst| u64::from(*burst) != quota.limit).map(Stated::whole),
            min_interval: min_interval.map(Stated::whole),
            lease_ttl: policy.lease_ttl().map(Stated::whole),
            overdraft: OverdraftDefaults::of_rule(rule, quota, policy),
        }
    }
}

impl Reporter<'_> {
    /// Reads the parameters in `defaults`.
    pub(super) fn default_parameters(&mut self, raw: &RawRateLimit, path: &Path<'_>) -> AlgorithmParameters {
        AlgorithmParameters {
            burst: raw.burst.stated().and_then(|burst| self.burst(burst, path)),
            min_interval: raw.min_interval.stated().and_then(|text| self.min_interval(text, path)),
            lease_ttl: raw.lease_ttl.stated().and_then(|text| self.lease_ttl(text, path)),
            overdraft: overdraft::read_defaults(self, raw, path),
        }
    }

    /// Reads the parameters of a limit: its own, else the defaults. `None` if one is invalid.
    pub(super) fn parameters(
        &mut self,
        chosen: Algorithm,
        raw: &RawRateLimit,
        defaults: &AlgorithmParameters,
        path: &Path<'_>,
    ) -> Option<(Parameters, bool)> {
        let burst = self.parameter(BURST, chosen, &raw.burst, defaults.burst, path, Self::burst);
        let AlgorithmParameters { min_interval, lease_ttl, .. } = *defaults;
        let min_interval =
            self.parameter(MIN_INTERVAL, chosen, &raw.min_interval, min_interval, path, Self::min_interval);
        let lease_ttl = self.parameter(LEASE_TTL, chosen, &raw.lease_ttl, lease_ttl, path, Self::lease_ttl);
        let overdraft = overdraft::read(self, chosen, raw, &defaults.overdraft, path);
        let reserve =
            overdraft::read_reserve(self, chosen, raw, &defaults.overdraft, overdraft.as_ref(), path);
        // All parameters are checked before the first invalid one ends the compilation.
        let (burst, min_interval, lease_ttl) = (burst?, min_interval?, lease_ttl?);
        let Overdraft { is_stated, max_debt, carry, .. } = overdraft?;
        let absent = Parameters::default();
        let parameters = Parameters {
            burst: burst.map(|burst| burst.value),
            min_interval: min_interval.map_or(absent.min_interval, |interval| interval.value),
            lease_ttl: lease_ttl.map_or(absent.lease_ttl, |ttl| ttl.value),
            overdraft: is_stated,
            max_debt,
            carry: carry.debt,
            unused_percent: carry.unused,
            reserve: reserve?,
        };
        Some((parameters, is_stated))
    }

    /// Reads a parameter, else its default, if the limit has its algorithm. `None` if it is invalid.
    fn parameter<T, U>(
        &mut self,
        key: ParameterKey,
        chosen: Algorithm,
        field: &Field<T>,
        default: Option<Stated<U>>,
        path: &Path<'_>,
        read: impl FnOnce(&mut Self, &Stated<T>, &Path<'_>) -> Option<Stated<U>>,
    ) -> Option<Option<Stated<U>>> {
        let Some(stated) = field.valid()? else { return Some(default.filter(|_| chosen == key.home)) };
        if chosen == key.home {
            return read(self, stated, path).map(Some);
        }
        let message = format!("is not a key of {}; expected `algorithm: {}`", chosen.name(), key.home.name());
        self.refuse(stated.at, &path.key(key.name), message)
    }

    fn burst(&mut self, stated: &Stated<u32>, path: &Path<'_>) -> Option<Stated<u32>> {
        if stated.value == 0 {
            let message = "is 0, so the bucket admits no requests; expected at least 1";
            return self.refuse(stated.at, &path.key("burst"), message);
        }
        Some(*stated)
    }

    fn min_interval(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> Option<Stated<Duration>> {
        let any = Duration::ZERO..=Duration::MAX;
        let value = self.duration(stated, &path.key("min_interval"), parse_micros, any, "any")?;
        Some(Stated { at: stated.at, value })
    }

    fn lease_ttl(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> Option<Stated<Duration>> {
        let range = MIN_LEASE_TTL..=MAX_LEASE_TTL;
        let value =
            self.duration(stated, &path.key("lease_ttl"), parse_micros, range, "1 second to 30 days")?;
        Some(Stated { at: stated.at, value })
    }

    /// Reads the window that `unit`, `unit_multiplier` and `window` state together, if they do; the outer `None` if it is
    /// invalid. A multiplier alone applies to `default`.
    pub(super) fn window(
        &mut self,
        raw: &RawRateLimit,
        default: Option<Unit>,
        path: &Path<'_>,
    ) -> Option<Option<Window>> {
        let window = match (raw.window.valid()?, raw.unit.valid()?, raw.unit_multiplier.valid()?) {
            (None, None, None) => return Some(None),
            (Some(window), None, None) => self.window_seconds(window, path),
            (Some(window), ..) => {
                let message = "contradicts `unit` and `unit_multiplier`; expected only one of them";
                self.refuse(window.at, &path.key("window"), message)
            }
            (None, Some(unit), multiplier) => match Unit::of(&unit.value) {
                Some(unit) => multiplier.map_or(Some(Window::of(unit)), |by| self.multiple(unit, by, path)),
                None => self.refuse(unit.at, &path.key("unit"), unknown::<Unit>(&unit.value)),
            },
            (None, None, Some(multiplier)) => match default {
                Some(unit) => self.multiple(unit, multiplier, path),
                None => {
                    let message = "has no `unit`; expected one to multiply";
                    self.refuse(multiplier.at, &path.key("unit_multiplier"), message)
                }
            },
        };
        window.map(Some)
    }

    fn window_seconds(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> Option<Window> {
        let seconds = parse_seconds(&stated.value).map_err(|error| error.to_string());
        let window =
            seconds.and_then(|seconds| Window::from_seconds(seconds).map_err(|error| error.to_string()));
        window.map_or_else(
            |expected| {
                let message = format!("`{}` is not a window; {expected}", stated.value);
                self.refuse(stated.at, &path.key("window"), message)
            },
            Some,
        )
    }

    fn multiple(&mut self, unit: Unit, multiplier: &Stated<u32>, path: &Path<'_>) -> Option<Window> {
        Window::new(unit, multiplier.value).map_or_else(
            |error| {
                let message = format!("{} × {unit} is not a window; {error}", multiplier.value);
                self.refuse(multiplier.at, &path.key("unit_multiplier"), message)
            },
            Some,
        )
    }

    pub(super) fn no_window(&mut self, at: Position, path: &Path<'_>) -> Option<Window> {
        let units = Unit::ALL.map(Unit::name).join(", ");
        let message = format!(
            "has no `unit` and no `window`; expected one of {units} as `unit`, or a `window` such as 30s"
        );
        self.refuse(at, path, message)
    }

    /// Reports the window of a concurrency limit. Returns whether it has no window.
    pub(super) fn check_no_window(&mut self, raw: &RawRateLimit, path: &Path<'_>) -> bool {
        for key in ["unit", "unit_multiplier", "window", "timezone", "anchor"] {
            if let Some(at) = raw.at(key) {
                let message = "a concurrency limit has no window; expected `lease_ttl`, the maximum time for which a \
                               permit is held";
                self.error(at, &path.key(key), message);
            }
        }
        let RawRateLimit { unit, unit_multiplier, window, timezone, anchor, .. } = raw;
        let has_window = unit.is_present() || unit_multiplier.is_present() || window.is_present();
        !has_window && !timezone.is_present() && !anchor.is_present()
    }
}
