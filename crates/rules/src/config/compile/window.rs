//! Windows of limits: `unit`, `unit_multiplier` and `window`, and their calendar by `timezone` and `anchor`.

use std::{rc::Rc, time::Duration};

use tollgate_core::{
    algorithm::{Algorithm, Policy},
    duration::parse_seconds,
    quota::{Quota, Unit, Window},
};

use super::parameters::{Reporter, unknown};
use crate::{
    calendar::{CalendarError, calendar},
    config::{
        problem::Path,
        raw::{Field, RawRateLimit, Stated},
        reader::excerpt,
        vocabulary::Mapping as _,
        yaml::Position,
    },
};

/// Time zone of an `anchor` alone.
const DEFAULT_TIME_ZONE: &str = "UTC";

impl Reporter<'_> {
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
            (None, Some(unit), multiplier) => match unit.value.parse() {
                Ok(unit) => multiplier.map_or(Some(Window::of(unit)), |by| self.multiple(unit, by, path)),
                Err(_) => self.refuse(unit.at, &path.key("unit"), unknown::<Unit>(&unit.value)),
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
                (error, Some(at)) if error.is_of_anchor() => ("anchor", at, anchor.text()),
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
