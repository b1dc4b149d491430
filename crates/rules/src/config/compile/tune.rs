//! Tuning of a limit: `tune`.

use std::{ops::RangeInclusive, rc::Rc, time::Duration};

use tollgate_core::{EnforcedShare, duration::parse_seconds};

use super::descriptor::Compiler;
use crate::{
    Limit, Scope, Segment, Value,
    config::{
        problem::Path,
        raw::{Field, RawRateLimit, RawTune, Stated},
        reader::excerpt,
        yaml::Position,
    },
    tune::Tune,
};

/// Time between two steps of limits that state none.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(600);

/// Ranges in hundredths of a percent, and in seconds.
const TARGETS: RangeInclusive<u16> = 0..=5_000;
const STEPS: RangeInclusive<u16> = 100..=5_000;
const INTERVALS: RangeInclusive<u32> = 60..=7 * 24 * 3_600;

/// Reads the tuning of a limit at `path`; `None` if it is invalid.
pub(super) fn read(
    compiler: &mut Compiler<'_>,
    raw: &RawRateLimit,
    tuned: (Option<&Limit>, &[Segment], Scope),
    path: &Path<'_>,
) -> Option<Option<Tune>> {
    let Stated { at, value } = match &raw.tune {
        Field::Absent => return Some(None),
        Field::Invalid => return None,
        Field::Stated(stated) => stated,
    };
    let path = path.key("tune");
    let RawTune { target_denied, between, step, every } = value;
    let mut percent = |field, key, range| percent(compiler, (field, *at), &path.key(key), range);
    let target = percent(target_denied, "target_denied", (TARGETS, "0 to 50%"));
    let step = percent(step, "step", (STEPS, "1% to 50%"));
    let interval = interval(compiler, every, &path);
    let bounds = bounds(compiler, (between, *at), &path);
    let limit = number(compiler, *at, tuned, &path)?;
    let (bounds, at) = bounds?;
    let (least, most) = bounds;
    if !(least..=most).contains(&limit) {
        let message = format!("excludes the limit itself; expected bounds around {limit}");
        compiler.error(at, &path.key("between"), message);
        return None;
    }
    Some(Some(Tune { target: target?, bounds, step: step?, interval: interval? }))
}

/// The number of a limit that can be tuned.
fn number(
    compiler: &mut Compiler<'_>,
    at: Position,
    (limit, segments, scope): (Option<&Limit>, &[Segment], Scope),
    path: &Path<'_>,
) -> Option<u32> {
    let (quota, policy) = match limit {
        Some(Limit::Quota { quota, policy }) => (quota, policy),
        // Beside `unlimited`, the key was reported.
        Some(Limit::Unlimited) | None => return None,
    };
    if policy.algorithm().takes_leases() {
        // The hits that clients reserve are not those that they use, so their demand is unknown.
        let message =
            "is not supported beside `reserve` or `algorithm: concurrency`; expected a limit without them";
        compiler.error(at, path, message);
        return None;
    }
    if scope != Scope::Regional {
        let message = "cannot be tuned for several regions together; expected `scope: regional`";
        compiler.error(at, path, message);
        return None;
    }
    if segments.iter().all(|segment| segment.value != Value::Open) {
        let message = "is never tuned: all requests share one counter, so no demand of single clients is observed; expected \
                       a limit with a counter for each client";
        compiler.warning(at, path, message);
    }
    let limit = u32::try_from(quota.limit).ok();
    if limit.is_none() {
        compiler.error(
            at,
            path,
            "cannot be tuned: the limit is too large; expected one of at most 4294967295",
        );
    }
    limit
}

fn percent(
    compiler: &mut Compiler<'_>,
    (field, whole): (&Field<EnforcedShare>, Position),
    path: &Path<'_>,
    (range, expected): (RangeInclusive<u16>, &str),
) -> Option<EnforcedShare> {
    match field {
        Field::Invalid => None,
        Field::Stated(Stated { value, .. }) if range.contains(&value.hundredths()) => Some(*value),
        Field::Stated(Stated { at, value }) => {
            compiler.error(*at, path, format!("{value}% is out of range; expected {expected}"));
            None
        }
        Field::Absent => {
            compiler.error(whole, path, format!("is missing; expected {expected}"));
            None
        }
    }
}

fn interval(compiler: &mut Compiler<'_>, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Duration> {
    let Stated { at, value } = match field {
        Field::Absent => return Some(DEFAULT_INTERVAL),
        Field::Invalid => return None,
        Field::Stated(stated) => stated,
    };
    let message = match parse_seconds(value) {
        Ok(seconds) if INTERVALS.contains(&seconds) => return Some(Duration::from_secs(seconds.into())),
        Ok(_) => format!("`{value}` is out of range; expected 1 minute to 7 days"),
        Err(expected) => format!("`{}` is not a duration; {expected}", excerpt(value)),
    };
    compiler.error(*at, &path.key("every"), message);
    None
}

/// Reads `between`, with its position.
fn bounds(
    compiler: &mut Compiler<'_>,
    (field, whole): (&Field<Vec<u32>>, Position),
    path: &Path<'_>,
) -> Option<((u32, u32), Position)> {
    const EXPECTED: &str = "expected the lowest and the highest limit, both above 0, e.g. [500, 2000]";
    let (at, found) = match field {
        Field::Invalid => return None,
        Field::Absent => (whole, "is missing".to_owned()),
        Field::Stated(Stated { at, value }) => match value.as_slice() {
            [least, most] if (1..=*most).contains(least) => return Some(((*least, *most), *at)),
            [least, most] if least > most => {
                (*at, format!("the lowest limit {least} is above the highest {most}"))
            }
            [_, _] => (*at, "0 is out of range".to_owned()),
            _ => (*at, "is not a pair of numbers".to_owned()),
        },
    };
    compiler.error(at, &path.key("between"), format!("{found}; {EXPECTED}"));
    None
}
