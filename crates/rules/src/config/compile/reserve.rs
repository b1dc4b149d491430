//! Reservations of a limit: `reserve`.

use std::num::NonZeroU32;

use tollgate_core::{
    algorithm::{Algorithm, Reserve, Unsettled},
    duration::parse_seconds,
};

use super::{overdraft::Overdraft, parameters::Reporter};
use crate::config::{
    problem::Path,
    raw::{Field, Ratio, RawRateLimit, RawReserve, Stated},
    reader::excerpt,
    yaml::Position,
};

/// Time to live of a lease by default, and the shortest and longest one, in seconds.
const DEFAULT_TTL: NonZeroU32 = NonZeroU32::new(600).unwrap();
const MIN_TTL: u32 = 2;
const MAX_TTL: u32 = 7 * 24 * 60 * 60;

/// Reads the reservations of a limit with the algorithm `chosen` and this overdraft: its own, else those of the rule that it
/// overrides. `None` if they are invalid.
pub(super) fn read(
    reporter: &mut Reporter<'_>,
    chosen: Algorithm,
    raw: &RawRateLimit,
    (of_rule, overdraft): (Option<Reserve>, Option<&Overdraft>),
    path: &Path<'_>,
) -> Option<Option<Reserve>> {
    let reserve = match &raw.reserve {
        Field::Invalid => return None,
        Field::Absent => match of_rule.filter(|_| chosen.stated() == Algorithm::FixedWindow) {
            Some(reserve) => Some(reserve),
            None => return Some(None),
        },
        Field::Stated(stated) => {
            let path = path.key("reserve");
            let reserve = terms(reporter, &stated.value, &path);
            if chosen.stated() != Algorithm::FixedWindow {
                let message =
                    format!("is not a key of {}; expected `algorithm: fixed_window`", chosen.name());
                reporter.error(stated.at, &path, message);
                return None;
            }
            reserve
        }
    };
    let is_possible = check_overdraft(reporter, raw, overdraft?, path);
    reserve.filter(|_| is_possible).map(Some)
}

/// Reads the keys; `None` if one is invalid.
fn terms(reporter: &mut Reporter<'_>, raw: &RawReserve, path: &Path<'_>) -> Option<Reserve> {
    let ttl = match &raw.ttl {
        Field::Invalid => None,
        Field::Absent => Some(DEFAULT_TTL),
        Field::Stated(Stated { at, value }) => match parse_seconds(value) {
            Ok(ttl) if (MIN_TTL..=MAX_TTL).contains(&ttl) => NonZeroU32::new(ttl),
            Ok(_) => {
                let message = format!("`{}` is out of range; expected 2 seconds to 7 days", excerpt(value));
                reporter.error(*at, &path.key("ttl"), message);
                None
            }
            Err(expected) => {
                let message = format!("`{}` is not a duration; {expected}", excerpt(value));
                reporter.error(*at, &path.key("ttl"), message);
                None
            }
        },
    };
    let unsettled = match &raw.unsettled {
        Field::Invalid => None,
        Field::Absent => Some(Unsettled::default()),
        Field::Stated(Stated { at, value }) => {
            let known = Unsettled::ALL.into_iter().find(|effect| effect.name() == &**value);
            if known.is_none() {
                let message =
                    format!("`{}` is not an effect; expected `charge` or `release`", excerpt(value));
                reporter.error(*at, &path.key("unsettled"), message);
            }
            known
        }
    };
    let cap = match &raw.cap {
        Field::Invalid => None,
        Field::Absent => Some(None),
        Field::Stated(Stated { at, value: Ratio(share) }) => match ten_thousandths(*share) {
            Some(cap) => Some(Some(cap)),
            None => {
                let message = "is out of range; expected a share of the limit from 0.01% to 100%";
                reporter.error(*at, &path.key("cap"), message);
                None
            }
        },
    };
    let add = match &raw.add {
        Field::Invalid => None,
        add => Some(add.stated().map_or(0, |add| add.value)),
    };
    // All keys are checked before the first invalid one ends the compilation.
    Some(Reserve { ttl: ttl?, unsettled: unsettled?, add: add?, cap: cap? })
}

#[allow(clippy::float_arithmetic)] // A stated share, once.
fn ten_thousandths(share: f64) -> Option<NonZeroU32> {
    let parts = (share * 10_000.0).round();
    (1.0..=10_000.0).contains(&parts).then(|| NonZeroU32::new(parts as u32)).flatten()
}

/// Reports the overdraft or the carry of a limit with reservations, whether it states them or `defaults` do. Returns whether
/// it has neither.
fn check_overdraft(
    reporter: &mut Reporter<'_>,
    raw: &RawRateLimit,
    overdraft: &Overdraft,
    path: &Path<'_>,
) -> bool {
    let (key, stated, reason, own, default, without) = if overdraft.is_stated {
        let reason = "the hits that a lease is settled with count beyond the limit too";
        let own = raw.overdraft.stated().map(|stated| stated.at);
        ("overdraft", "`overdraft: true`", reason, own, overdraft.default_at.overdraft, "overdraft: false")
    } else if overdraft.carry.unused_percent > 0 {
        let reason = "what leases hold is neither used nor unused";
        let own = raw.carry.stated().map(|stated| stated.at);
        ("carry", "`carry` of unused hits", reason, own, overdraft.default_at.carry, "carry: false")
    } else {
        return true;
    };
    let of_limit = raw.reserve.stated().map(|reserve| reserve.at);
    let (at, at_key, message) = match (of_limit, own, default) {
        (Some(at), None, Some(default)) => {
            let line = default.line();
            let place = format!("{stated} of `defaults` at {}:{line}", reporter.file);
            (Some(at), "reserve", format!("contradicts {place}: {reason}; expected `{without}` beside it"))
        }
        (Some(at), ..) => {
            (Some(at), "reserve", format!("contradicts {stated}: {reason}; remove one of them"))
        }
        (None, own, _) => {
            (own, key, format!("contradicts the `reserve` of the rule: {reason}; expected `{without}`"))
        }
    };
    reporter.error(at.unwrap_or(Position::WHOLE), &path.key(at_key), message);
    false
}
