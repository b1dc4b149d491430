//! Parameters of limits, common to `rate_limit` and `defaults`.

use std::{fmt, ops::RangeInclusive, rc::Rc, time::Duration};

use tollgate_core::{
    algorithm::{Algorithm, Parameters, Policy, Reserve},
    duration::{DurationError, parse_micros, parse_seconds},
    quota::{Quota, Unit},
};

use super::overdraft::{self, Overdraft, OverdraftDefaults};
use crate::{
    MAX_RETRY_AFTER_SPREAD, Rule,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
        reader::excerpt,
        vocabulary::{Word, nearest, words},
        yaml::Position,
    },
};

/// Reads parameters of one file, and reports its problems.
pub(super) struct Reporter<'a> {
    pub(super) file: &'a Rc<str>,
    pub(super) problems: &'a mut Problems,
}

impl Reporter<'_> {
    pub(super) fn error(&mut self, at: Position, path: &Path<'_>, message: impl fmt::Display) {
        self.problems.error(self.file, at, path, message);
    }

    /// Reports an error, and returns `None`.
    pub(super) fn refuse<T>(
        &mut self,
        at: Position,
        path: &Path<'_>,
        message: impl fmt::Display,
    ) -> Option<T> {
        self.error(at, path, message);
        None
    }

    pub(super) fn warning(&mut self, at: Position, path: &Path<'_>, message: impl fmt::Display) {
        self.problems.warning(self.file, at, path, message);
    }

    /// Reads `retry_after_spread`, in whole seconds; `None` if it is absent or invalid.
    pub(super) fn retry_after_spread(
        &mut self,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Stated<Duration>> {
        let stated = field.stated()?;
        let max = MAX_RETRY_AFTER_SPREAD.as_secs() as u32;
        let seconds = self.duration(
            stated,
            &path.key("retry_after_spread"),
            parse_seconds,
            0..=max,
            "0 seconds to 24 hours",
        )?;
        Some(Stated { at: stated.at, value: Duration::from_secs(seconds.into()) })
    }

    /// Reads a duration in a range, which `expected` describes; `None` if it is invalid.
    pub(super) fn duration<T: PartialOrd>(
        &mut self,
        stated: &Stated<Rc<str>>,
        path: &Path<'_>,
        parse: fn(&str) -> Result<T, DurationError>,
        range: RangeInclusive<T>,
        expected: &str,
    ) -> Option<T> {
        let text = excerpt(&stated.value);
        match parse(&stated.value) {
            Ok(duration) if range.contains(&duration) => Some(duration),
            Ok(_) => self.refuse(stated.at, path, format!("`{text}` is out of range; expected {expected}")),
            Err(error) => self.refuse(stated.at, path, format!("`{text}` is not a duration; {error}")),
        }
    }

    /// Reads a value that is a word; `None` if it is absent or invalid.
    pub(super) fn word<W: Word>(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Stated<W>> {
        let Stated { at, value: word } = field.stated()?;
        let value = W::named().into_iter().find(|(name, _)| *name == &**word).map(|(_, value)| value);
        if value.is_none() {
            self.error(*at, path, unknown::<W>(word));
        }
        value.map(|value| Stated { at: *at, value })
    }

    pub(super) fn no_limit(&mut self, at: Position, path: &Path<'_>) -> Option<u64> {
        let message = "has no `requests_per_unit`, so all requests are denied; state 0 if that is meant";
        self.problems.warning(self.file, at, path, message);
        Some(0)
    }
}

/// Message for an unknown word.
pub(super) fn unknown<W: Word>(word: &str) -> String {
    let (word, noun, known) = (excerpt(word), W::NOUN, words::<W>());
    match nearest(&word, known.iter().copied()) {
        Some(meant) => format!("`{word}` is not {noun}; did you mean `{meant}`?"),
        None => format!("`{word}` is not {noun}; expected one of {}", known.join(", ")),
    }
}

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
    /// Of a rule, for an override of it.
    reserve: Option<Reserve>,
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
        let reserve = overdraft::read_reserve(self, chosen, raw, defaults.reserve, overdraft.as_ref(), path);
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
}
