//! Charges after the response: `overdraft`, `max_debt`, `carry` and `reserve`, and limits that likely need one of them.

use std::num::NonZeroU32;

use tollgate_core::algorithm::{Algorithm, Policy, Reserve, Unsettled};
use tollgate_core::{duration::parse_seconds, quota::Quota};

use super::{Compiler, reporter::Reporter};
use crate::config::problem::Path;
use crate::config::raw::{RawCarry, RawRateLimit, RawReserve, Stated};
use crate::config::yaml::Position;
use crate::{Limit, Rule};

/// Words in names, keys and values of limits of what is counted after the response.
const POST_PAID_WORDS: [&str; 8] =
    ["tokens", "cost", "costs", "spend", "spent", "usage", "credits", "budget"];

/// Overdraft of a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overdraft {
    pub(super) is_stated: bool,
    pub(super) max_debt: Option<u32>,
    pub(super) carry: RawCarry,
}

/// The keys in `defaults`, for the limits whose algorithms have them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OverdraftDefaults {
    pub(super) overdraft: Option<Stated<bool>>,
    pub(super) max_debt: Option<Stated<u32>>,
    carry: Option<Stated<RawCarry>>,
    /// Of a rule, for an override of it.
    reserve: Option<Reserve>,
}

impl OverdraftDefaults {
    /// The values of a rule, as defaults of an override of it.
    pub(super) fn of_rule(rule: &Rule, quota: Quota, policy: &Policy) -> Self {
        // A debt as large as the limit is the default, which follows the limit.
        let debt = policy
            .max_debt()
            .and_then(|debt| u32::try_from(debt).ok())
            .filter(|debt| u64::from(*debt) != quota.limit);
        let is_window = policy.algorithm() == Algorithm::FixedWindow;
        Self {
            overdraft: Some(Stated::whole(rule.overdraft)),
            max_debt: debt.map(Stated::whole),
            carry: Some(Stated::whole(RawCarry {
                debt: rule.overdraft && is_window && policy.max_debt().is_some(),
                unused: policy.unused_percent(),
            })),
            reserve: policy.reserve_terms(),
        }
    }
}

/// Reads the keys in `defaults`.
pub(super) fn read_defaults(
    reporter: &mut Reporter<'_>,
    raw: &RawRateLimit,
    path: &Path<'_>,
) -> OverdraftDefaults {
    OverdraftDefaults {
        overdraft: raw.overdraft.stated().copied(),
        max_debt: raw.max_debt.stated().and_then(|debt| read_max_debt(reporter, debt, path)),
        carry: raw.carry.stated().copied(),
        reserve: None,
    }
}

/// Reads the overdraft of a limit: its own keys, else the defaults. `None` if one is invalid.
pub(super) fn read(
    reporter: &mut Reporter<'_>,
    chosen: Algorithm,
    raw: &RawRateLimit,
    defaults: &OverdraftDefaults,
    path: &Path<'_>,
) -> Option<Overdraft> {
    let is_possible = !chosen.holds_permits();
    let is_stated = match raw.overdraft.valid()? {
        Some(Stated { at, value: true }) if !is_possible => {
            let message = "a concurrency limit has no overdraft, since a permit is free again after its request; \
                           expected false";
            return reporter.refuse(*at, &path.key("overdraft"), message);
        }
        Some(stated) => stated.value,
        None => is_possible && defaults.overdraft.is_some_and(|overdraft| overdraft.value),
    };
    if is_stated && let Some(interval) = raw.min_interval.stated() {
        let message = "has no effect beside `overdraft: true`, with which every charge counts";
        reporter.warning(interval.at, &path.key("min_interval"), message);
    }
    let carry = read_carry(reporter, chosen, raw, is_stated, path)?;
    let is_window = chosen == Algorithm::FixedWindow;
    let default = defaults.carry.filter(|_| is_window).map(|carry| carry.value).unwrap_or_default();
    let carry = carry.unwrap_or(RawCarry { debt: default.debt && is_stated, ..default });
    let has_debt = is_stated && (carry.debt || chosen == Algorithm::TokenBucket);
    let max_debt = match raw.max_debt.valid()? {
        None => defaults.max_debt.filter(|_| has_debt),
        Some(stated) if has_debt => Some(read_max_debt(reporter, stated, path)?),
        Some(stated) => {
            let message = "has no effect here; expected `overdraft: true` with `algorithm: token_bucket`, or with \
                           `carry: true`";
            return reporter.refuse(stated.at, &path.key("max_debt"), message);
        }
    };
    Some(Overdraft { is_stated, max_debt: max_debt.map(|debt| debt.value), carry })
}

/// Reads `carry`: the stated value; `None` if it is invalid.
fn read_carry(
    reporter: &mut Reporter<'_>,
    chosen: Algorithm,
    raw: &RawRateLimit,
    is_overdraft: bool,
    path: &Path<'_>,
) -> Option<Option<RawCarry>> {
    let Some(Stated { at, value }) = raw.carry.valid()? else { return Some(None) };
    let carry = *value;
    let message = match carry {
        RawCarry { debt: false, unused: 0 } => return Some(Some(carry)),
        _ if chosen != Algorithm::FixedWindow => {
            format!("is not a key of {}; expected `algorithm: fixed_window`", chosen.name())
        }
        RawCarry { debt: true, .. } if !is_overdraft => {
            "has no effect without an overdraft; expected `overdraft: true`".to_owned()
        }
        _ => return Some(Some(carry)),
    };
    reporter.refuse(*at, &path.key("carry"), message)
}

fn read_max_debt(reporter: &mut Reporter<'_>, stated: &Stated<u32>, path: &Path<'_>) -> Option<Stated<u32>> {
    if stated.value == 0 {
        let message = "is 0, so no charge counts beyond the limit; expected at least 1";
        return reporter.refuse(stated.at, &path.key("max_debt"), message);
    }
    Some(*stated)
}

/// Warns of a limit that is likely charged after the response, and has no overdraft.
pub(super) fn warn_of_lost_charges(
    compiler: &mut Compiler<'_>,
    rule: &Rule,
    raw: &RawRateLimit,
    at: Position,
    path: &Path<'_>,
) {
    let default = &compiler.defaults.parameters.overdraft.overdraft;
    let has_choice = raw.overdraft.is_present() || default.is_some();
    let takes_leases = rule.algorithm().is_none_or(Algorithm::takes_leases);
    if has_choice || takes_leases || rule.limit == Limit::Unlimited {
        return;
    }
    let own = rule.segments.last().map(|segment| &*segment.stated);
    let words =
        own.into_iter().chain([&*rule.name]).flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
    let known = |word: &str| POST_PAID_WORDS.into_iter().find(|known| known.eq_ignore_ascii_case(word));
    if let Some(word) = words.filter_map(known).next() {
        let message = format!(
            "counts `{word}`, which may be charged after the response: a charge above what remains is then dropped; \
             expected `overdraft: true`, or `overdraft: false` if requests are charged beforehand"
        );
        compiler.reporter.warning(at, path, message);
    }
}

/// Time to live of a lease by default, and the shortest and longest one, in seconds.
const DEFAULT_TTL: NonZeroU32 = NonZeroU32::new(600).unwrap();
const MIN_TTL: u32 = 2;
const MAX_TTL: u32 = 7 * 24 * 60 * 60;

/// Reads the reservations of a limit with the algorithm `chosen` and this overdraft: its own, else those of the rule that it
/// overrides. `None` if they are invalid.
pub(super) fn read_reserve(
    reporter: &mut Reporter<'_>,
    chosen: Algorithm,
    raw: &RawRateLimit,
    defaults: &OverdraftDefaults,
    overdraft: Option<&Overdraft>,
    path: &Path<'_>,
) -> Option<Option<Reserve>> {
    let is_window = chosen.stated() == Algorithm::FixedWindow;
    let reserve = match raw.reserve.valid()? {
        None => match defaults.reserve.filter(|_| is_window) {
            Some(reserve) => Some(reserve),
            None => return Some(None),
        },
        Some(stated) => {
            let path = path.key("reserve");
            let reserve = terms(reporter, &stated.value, &path);
            if !is_window {
                let message =
                    format!("is not a key of {}; expected `algorithm: fixed_window`", chosen.name());
                return reporter.refuse(stated.at, &path, message);
            }
            reserve
        }
    };
    let is_possible = check_overdraft(reporter, raw, defaults, overdraft?, path);
    reserve.filter(|_| is_possible).map(Some)
}

/// Reads the keys; `None` if one is invalid.
fn terms(reporter: &mut Reporter<'_>, raw: &RawReserve, path: &Path<'_>) -> Option<Reserve> {
    let ttl = raw.ttl.read_or(DEFAULT_TTL, |stated| {
        let range = MIN_TTL..=MAX_TTL;
        let seconds =
            reporter.duration(stated, &path.key("ttl"), parse_seconds, range, "2 seconds to 7 days")?;
        NonZeroU32::new(seconds)
    });
    let unsettled = reporter.word_or(Unsettled::default(), &raw.unsettled, &path.key("unsettled"));
    let cap = raw.cap.read_or(None, |Stated { at, value: share }| {
        let cap = ten_thousandths(*share).or_else(|| {
            let message = "is out of range; expected a share of the limit from 0.01% to 100%";
            reporter.refuse(*at, &path.key("cap"), message)
        });
        cap.map(Some)
    });
    let add = raw.add.read_or(0, |add| Some(add.value));
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
    defaults: &OverdraftDefaults,
    overdraft: &Overdraft,
    path: &Path<'_>,
) -> bool {
    let (key, stated, reason, own, default, without) = if overdraft.is_stated {
        let reason = "the hits that a lease is settled with count beyond the limit too";
        let (own, default) = (raw.overdraft.at(), defaults.overdraft.map(|overdraft| overdraft.at));
        ("overdraft", "`overdraft: true`", reason, own, default, "overdraft: false")
    } else if overdraft.carry.unused > 0 {
        let reason = "what leases hold is neither used nor unused";
        let (own, default) = (raw.carry.at(), defaults.carry.map(|carry| carry.at));
        ("carry", "`carry` of unused hits", reason, own, default, "carry: false")
    } else {
        return true;
    };
    // The values of a rule, as defaults of an override, have no position.
    let default = default.filter(|at| *at != Position::WHOLE);
    let (at, at_key, message) = match (raw.reserve.at(), own, default) {
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
