//! Parameters of single algorithms: `burst`, `min_interval` and `lease_ttl`; `overdraft` with its own.

use std::{rc::Rc, time::Duration};

use tollgate_core::{
    algorithm::{Algorithm, Parameters, Policy, Reserve},
    duration::parse_micros,
    quota::{Quota, Unit, Window},
};

use super::{
    overdraft::{self, Overdraft, OverdraftDefaults},
    parameters::Reporter,
    reserve,
};
use crate::{
    Rule,
    config::{
        problem::Path,
        raw::{Field, RawRateLimit, Stated},
        reader::excerpt,
        yaml::Position,
    },
};

const MIN_LEASE_TTL: Duration = Duration::from_secs(1);
const MAX_LEASE_TTL: Duration = Duration::from_secs(Unit::Month.seconds() as u64);

/// Key and the algorithm that uses it.
type ParameterKey = (&'static str, Algorithm);

const BURST: ParameterKey = ("burst", Algorithm::TokenBucket);
const MIN_INTERVAL: ParameterKey = ("min_interval", Algorithm::SlidingWindowLog);
const LEASE_TTL: ParameterKey = ("lease_ttl", Algorithm::Concurrency);

/// Parameters in `defaults`, for the limits of their algorithms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AlgorithmParameters {
    pub(super) burst: Option<Stated<u32>>,
    pub(super) min_interval: Option<Stated<Duration>>,
    lease_ttl: Option<Stated<Duration>>,
    pub(super) overdraft: OverdraftDefaults,
    /// Of a rule, for an override of it.
    reserve: Option<Reserve>,
}

impl AlgorithmParameters {
    /// The parameters of a rule, as defaults of an override of it.
    pub(super) fn of_rule(rule: &Rule, quota: Quota, policy: &Policy) -> Self {
        fn stated<T>(value: T) -> Stated<T> {
            Stated { at: Position::WHOLE, value }
        }
        // A burst as large as the limit is the default, which follows the limit.
        let burst = policy.burst().and_then(|burst| u32::try_from(burst).ok());
        let min_interval = Some(policy.min_interval()).filter(|interval| !interval.is_zero());
        Self {
            burst: burst.filter(|burst| u64::from(*burst) != quota.limit).map(stated),
            min_interval: min_interval.map(stated),
            lease_ttl: policy.lease_ttl().map(stated),
            overdraft: OverdraftDefaults::of_rule(rule, quota, policy),
            reserve: policy.reserve_terms(),
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
            reserve: None,
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
        let reserve = reserve::read(self, chosen, raw, (defaults.reserve, overdraft.as_ref()), path);
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
            unused_percent: carry.unused_percent,
            reserve: reserve?,
        };
        Some((parameters, is_stated))
    }

    /// Reads a parameter, else its default, if the limit has its algorithm. `None` if it is invalid.
    fn parameter<T, U>(
        &mut self,
        (key, home): ParameterKey,
        chosen: Algorithm,
        field: &Field<T>,
        default: Option<Stated<U>>,
        path: &Path<'_>,
        read: impl FnOnce(&mut Self, &Stated<T>, &Path<'_>) -> Option<Stated<U>>,
    ) -> Option<Option<Stated<U>>> {
        match field {
            Field::Invalid => None,
            Field::Absent => Some(default.filter(|_| chosen == home)),
            Field::Stated(stated) if chosen == home => read(self, stated, path).map(Some),
            Field::Stated(stated) => {
                let message =
                    format!("is not a key of {}; expected `algorithm: {}`", chosen.name(), home.name());
                self.problems.error(self.file, stated.at, path.key(key), message);
                None
            }
        }
    }

    fn burst(&mut self, stated: &Stated<u32>, path: &Path<'_>) -> Option<Stated<u32>> {
        if stated.value == 0 {
            let message = "is 0, so the bucket admits no requests; expected at least 1";
            self.problems.error(self.file, stated.at, path.key("burst"), message);
        }
        Some(*stated).filter(|burst| burst.value > 0)
    }

    fn min_interval(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> Option<Stated<Duration>> {
        self.duration(stated, &path.key("min_interval"))
    }

    fn lease_ttl(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> Option<Stated<Duration>> {
        let path = path.key("lease_ttl");
        let ttl = self.duration(stated, &path)?;
        if !(MIN_LEASE_TTL..=MAX_LEASE_TTL).contains(&ttl.value) {
            let message = format!("`{}` is out of range; expected 1 second to 30 days", stated.value);
            self.problems.error(self.file, stated.at, path, message);
            return None;
        }
        Some(ttl)
    }

    fn duration(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> Option<Stated<Duration>> {
        match parse_micros(&stated.value) {
            Ok(value) => Some(Stated { at: stated.at, value }),
            Err(expected) => {
                let message = format!("`{}` is not a duration; {expected}", excerpt(&stated.value));
                self.problems.error(self.file, stated.at, path, message);
                None
            }
        }
    }

    /// Reports the window of a concurrency limit. Returns whether it has no window.
    pub(super) fn check_no_window(&mut self, raw: &RawRateLimit, path: &Path<'_>) -> bool {
        let at = |text: &Field<Rc<str>>| text.stated().map(|stated| stated.at);
        let multiplier_at = raw.unit_multiplier.stated().map(|stated| stated.at);
        for (key, at) in [
            ("unit", at(&raw.unit)),
            ("unit_multiplier", multiplier_at),
            ("window", at(&raw.window)),
            ("timezone", at(&raw.timezone)),
            ("anchor", at(&raw.anchor)),
        ] {
            if let Some(at) = at {
                let message = "a concurrency limit has no window; expected `lease_ttl`, the maximum time for which a \
                               permit is held";
                self.problems.error(self.file, at, path.key(key), message);
            }
        }
        let has_calendar = raw.timezone.is_present() || raw.anchor.is_present();
        !(raw.unit.is_present()
            || raw.unit_multiplier.is_present()
            || raw.window.is_present()
            || has_calendar)
    }
}

/// Substitute for the window of a concurrency limit: the time to live of its leases in whole seconds.
pub(super) fn window_of_leases(lease_ttl: Duration) -> Window {
    let seconds = lease_ttl.as_secs().saturating_add(u64::from(lease_ttl.subsec_nanos() > 0));
    let window = u32::try_from(seconds).ok().and_then(|seconds| Window::from_seconds(seconds).ok());
    // The time to live is at most 30 days.
    window.unwrap_or(Window::of(Unit::Month))
}
