//! Parameters that go with one algorithm each: `burst`, `min_interval` and `lease_ttl`.

use std::{rc::Rc, time::Duration};

use super::parameters::Reporter;
use crate::config::{
    problem::Path,
    raw::{Field, RawRateLimit, Stated},
    reader::excerpt,
};
use tollgate_core::{
    algorithm::{Algorithm, Parameters},
    duration::parse_micros,
    quota::{Unit, Window},
};

const SHORTEST_LEASE: Duration = Duration::from_secs(1);
const LONGEST_LEASE: Duration = Duration::from_secs(Unit::Month.seconds() as u64);

/// A key and the algorithm that it goes with.
type Particular = (&'static str, Algorithm);

const BURST: Particular = ("burst", Algorithm::TokenBucket);
const MIN_INTERVAL: Particular = ("min_interval", Algorithm::SlidingWindowLog);
const LEASE_TTL: Particular = ("lease_ttl", Algorithm::Concurrency);

/// What `defaults` states of them, for the limits that they go with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Particulars {
    pub(super) burst: Option<Stated<u32>>,
    pub(super) min_interval: Option<Stated<Duration>>,
    lease_ttl: Option<Stated<Duration>>,
}

impl Reporter<'_> {
    /// What `defaults` states.
    pub(super) fn particulars(&mut self, raw: &RawRateLimit, path: &Path<'_>) -> Particulars {
        Particulars {
            burst: raw.burst.stated().and_then(|burst| self.burst(burst, path)),
            min_interval: raw.min_interval.stated().and_then(|text| self.min_interval(text, path)),
            lease_ttl: raw.lease_ttl.stated().and_then(|text| self.lease_ttl(text, path)),
        }
    }

    /// Those of a limit: what it states, else the default. `None` when one is wrong.
    pub(super) fn parameters(
        &mut self,
        chosen: Algorithm,
        raw: &RawRateLimit,
        defaults: &Particulars,
        path: &Path<'_>,
    ) -> Option<Parameters> {
        let burst = self.particular(BURST, chosen, &raw.burst, defaults.burst, path, Self::burst);
        let Particulars { min_interval, lease_ttl, .. } = *defaults;
        let min_interval =
            self.particular(MIN_INTERVAL, chosen, &raw.min_interval, min_interval, path, Self::min_interval);
        let lease_ttl = self.particular(LEASE_TTL, chosen, &raw.lease_ttl, lease_ttl, path, Self::lease_ttl);
        // Each of them was looked at before one that is wrong ends it.
        let (burst, min_interval, lease_ttl) = (burst?, min_interval?, lease_ttl?);
        let unstated = Parameters::default();
        Some(Parameters {
            burst: burst.map(|burst| burst.value),
            min_interval: min_interval.map_or(unstated.min_interval, |interval| interval.value),
            lease_ttl: lease_ttl.map_or(unstated.lease_ttl, |ttl| ttl.value),
        })
    }

    /// What is stated, else the default, where the limit has the key's algorithm. `None` when it is wrong.
    fn particular<T, U>(
        &mut self,
        (key, home): Particular,
        chosen: Algorithm,
        field: &Field<T>,
        default: Option<Stated<U>>,
        path: &Path<'_>,
        read: impl FnOnce(&mut Self, &Stated<T>, &Path<'_>) -> Option<Stated<U>>,
    ) -> Option<Option<Stated<U>>> {
        match field {
            Field::Wrong => None,
            Field::Absent => Some(default.filter(|_| chosen == home)),
            Field::Stated(stated) if chosen == home => read(self, stated, path).map(Some),
            Field::Stated(stated) => {
                let message =
                    format!("goes with `algorithm: {}`; {} has no {key}", home.name(), chosen.name());
                self.problems.error(self.file, stated.at, path.key(key), message);
                None
            }
        }
    }

    fn burst(&mut self, stated: &Stated<u32>, path: &Path<'_>) -> Option<Stated<u32>> {
        if stated.value == 0 {
            let message = "expected at least 1: a bucket that holds nothing admits nothing";
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
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&ttl.value) {
            let message = format!("`{}` is out of range: expected 1 second to 30 days", stated.value);
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

    /// Whether a concurrency limit states no window, as it should.
    pub(super) fn has_no_window(&mut self, raw: &RawRateLimit, path: &Path<'_>) -> bool {
        let at = |text: &Field<Rc<str>>| text.stated().map(|stated| stated.at);
        let multiplier_at = raw.unit_multiplier.stated().map(|stated| stated.at);
        for (key, at) in
            [("unit", at(&raw.unit)), ("unit_multiplier", multiplier_at), ("window", at(&raw.window))]
        {
            if let Some(at) = at {
                let message = "a concurrency limit has no window; `lease_ttl` says how long a place is held at \
                               the most";
                self.problems.error(self.file, at, path.key(key), message);
            }
        }
        !(raw.unit.is_present() || raw.unit_multiplier.is_present() || raw.window.is_present())
    }
}

/// What stands for the window of a concurrency limit, which has none: the time to live of its leases, in whole
/// seconds.
pub(super) fn window_of_leases(lease_ttl: Duration) -> Window {
    let seconds = lease_ttl.as_secs().saturating_add(u64::from(lease_ttl.subsec_nanos() > 0));
    let window = u32::try_from(seconds).ok().and_then(|seconds| Window::from_seconds(seconds).ok());
    // No lease is longer than a month.
    window.unwrap_or(Window::of(Unit::Month))
}
