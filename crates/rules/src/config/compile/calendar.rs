//! Windows of a calendar: `timezone` and `anchor`.

use tollgate_core::{
    algorithm::{Algorithm, Policy},
    quota::{Quota, Window},
};

use super::parameters::Reporter;
use crate::{
    calendar::{CalendarError, calendar},
    config::{
        problem::Path,
        raw::{Field, RawRateLimit, Stated},
        reader::excerpt,
    },
};

/// Time zone of an `anchor` alone.
const DEFAULT_TIME_ZONE: &str = "UTC";

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
        _ => (timezone.stated().map(|zone| zone.at), anchor.stated().map(|anchor| anchor.at)),
    };
    let key = if zone_at.is_some() { "timezone" } else { "anchor" };
    let at = zone_at.or(anchor_at).unwrap_or(raw.at);
    if window.multiplier().get() != 1 {
        let message = format!("needs windows of a single unit; expected `unit: {}` alone", window.unit());
        reporter.error(at, &path.key(key), message);
        return None;
    }
    let known = window.calendar();
    let zone = timezone.stated().map(|zone| &*zone.value);
    let zone = zone.or(known.map(|known| known.time_zone())).unwrap_or(DEFAULT_TIME_ZONE);
    let day = anchor.stated().map(|anchor| &*anchor.value).or(known.and_then(|known| known.anchor()));
    match calendar(window.unit(), zone, day) {
        Ok(calendar) => Some(Window::in_calendar(calendar)),
        Err(error) => {
            let (key, at, text) = match (error, anchor_at) {
                (CalendarError::Unit, _) => (key, at, window.unit().name()),
                (error, Some(at)) if error.is_of_anchor() => ("anchor", at, anchor.text()),
                _ => (key, at, zone),
            };
            reporter.error(at, &path.key(key), format!("`{}` {error}", excerpt(text)));
            None
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
    let zone_at = raw.value.timezone.stated().map(|zone| zone.at);
    let own = zone_at.or(raw.value.anchor.stated().map(|anchor| anchor.at)).unwrap_or(raw.at);
    let (key, at, message) = match policy.algorithm() {
        Algorithm::FixedWindow if policy.max_debt().is_some_and(|debt| debt > quota.limit) => {
            let at = raw.value.max_debt.stated().map(|debt| debt.at);
            let message = "is more than the limit, but the next window is the last that a debt counts in, of a calendar \
                           or with `unused`; expected at most the limit";
            ("max_debt", at.unwrap_or(own), message)
        }
        Algorithm::FixedWindow => return true,
        Algorithm::Budget => {
            let at = raw.value.reserve.stated().map(|reserve| reserve.at);
            (
                "reserve",
                at.unwrap_or(own),
                "cannot be combined with windows of a calendar; expected no `timezone` or `anchor`",
            )
        }
        _ => ("timezone", own, "is a key of fixed windows; expected `algorithm: fixed_window`"),
    };
    reporter.error(at, &path.key(key), message);
    false
}
