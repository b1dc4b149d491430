//! Bans of a limit's counters: `ban`.

use std::rc::Rc;

use tollgate_core::{
    algorithm::Algorithm,
    ban::{BanMode, BanParameters, BanPolicy, BanPolicyError},
    duration::parse_seconds,
};

use super::{descriptor::Compiler, parameters::Reporter};
use crate::{
    Limit, Segment, Value,
    config::{
        problem::Path,
        raw::{Field, RawBan, RawDescriptor, Stated},
        reader::excerpt,
    },
};

/// Keys whose values many clients may share.
const ADDRESS_KEYS: [&str; 2] = ["remote_address", "masked_remote_address"];

/// A limit, as far as it concerns its bans.
#[derive(Clone, Copy)]
pub(super) struct Banned<'a> {
    pub(super) limit: Option<&'a Limit>,
    pub(super) is_overdraft: bool,
    pub(super) segments: &'a [Segment],
}

/// Reads the bans of a limit at `path`; `None` if they are invalid.
pub(super) fn read(
    compiler: &mut Compiler<'_>,
    descriptor: &RawDescriptor,
    field: &Field<RawBan>,
    banned: Banned<'_>,
    path: &Path<'_>,
) -> Option<Option<BanPolicy>> {
    let stated = match field {
        Field::Absent => return Some(None),
        Field::Invalid => return None,
        Field::Stated(stated) => stated,
    };
    let path = path.key("ban");
    let parameters = parameters(&mut compiler.reporter(), &stated.value, &path);
    let is_possible = check_limit(compiler, descriptor, stated, banned, &path);
    let parameters = parameters?;
    let (true, Some(Limit::Quota { quota, .. })) = (is_possible, banned.limit) else { return None };
    match BanPolicy::new(&parameters, *quota) {
        Ok(policy) => {
            check_listing(compiler, &stated.value, banned.segments, &path)?;
            warn(compiler, descriptor, stated, banned.segments, &policy, &path);
            Some(Some(policy))
        }
        Err(error) => {
            let Stated { at, value: raw } = stated;
            let own = |field: &Field<Rc<str>>| field.stated().map(|stated| stated.at);
            let (key, own) = match error {
                BanPolicyError::Interval => ("interval", own(&raw.interval)),
                BanPolicyError::Threshold => ("threshold", raw.threshold.stated().map(|stated| stated.at)),
                BanPolicyError::Duration => ("duration", own(&raw.duration)),
                BanPolicyError::MaxDuration => ("max_duration", own(&raw.max_duration)),
                BanPolicyError::Forgive => ("forgive", own(&raw.forgive)),
                BanPolicyError::ListAfter => ("list_after", raw.list_after.stated().map(|stated| stated.at)),
            };
            compiler.error(own.unwrap_or(*at), &path.key(key), format!("is out of range; {error}"));
            None
        }
    }
}

/// Reads the keys; `None` if one is invalid.
fn parameters(reporter: &mut Reporter<'_>, raw: &RawBan, path: &Path<'_>) -> Option<BanParameters> {
    let default = BanParameters::default();
    let threshold = match &raw.threshold {
        Field::Invalid => None,
        Field::Absent => Some(default.threshold),
        Field::Stated(stated) => Some(stated.value),
    };
    let interval = seconds(reporter, &raw.interval, &path.key("interval"));
    let duration = seconds(reporter, &raw.duration, &path.key("duration"));
    let max_duration = seconds(reporter, &raw.max_duration, &path.key("max_duration"));
    let forgive = seconds(reporter, &raw.forgive, &path.key("forgive"));
    let list_after = match &raw.list_after {
        Field::Invalid => None,
        field => Some(field.stated().map(|stated| stated.value)),
    };
    let mode = match &raw.mode {
        Field::Absent => Some(default.mode),
        stated => reporter.ban_mode(stated, path),
    };
    // All keys are checked before the first invalid one ends the compilation.
    Some(BanParameters {
        threshold: threshold?,
        interval: interval?.unwrap_or(default.interval),
        duration: duration?.unwrap_or(default.duration),
        max_duration: max_duration?,
        forgive: forgive?.unwrap_or(default.forgive),
        list_after: list_after?,
        mode: mode?,
    })
}

fn seconds(reporter: &mut Reporter<'_>, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Option<u32>> {
    let Stated { at, value } = match field {
        Field::Absent => return Some(None),
        Field::Invalid => return None,
        Field::Stated(stated) => stated,
    };
    match parse_seconds(value) {
        Ok(seconds) => Some(Some(seconds)),
        Err(expected) => {
            reporter.error(*at, path, format!("`{}` is not a duration; {expected}", excerpt(value)));
            None
        }
    }
}

/// Reports a limit whose counters cannot be banned. Returns whether they can be.
fn check_limit(
    compiler: &mut Compiler<'_>,
    descriptor: &RawDescriptor,
    Stated { at, .. }: &Stated<RawBan>,
    Banned { limit, is_overdraft, segments }: Banned<'_>,
    path: &Path<'_>,
) -> bool {
    let algorithm = match limit {
        Some(Limit::Quota { policy, .. }) if policy.unused_percent() > 0 => {
            let message =
                "contradicts `carry` of unused hits, which needs all of them; expected a limit without it";
            compiler.error(*at, path, message);
            return false;
        }
        Some(Limit::Quota { policy, .. }) => policy.algorithm(),
        // An invalid limit was reported, and so was a `ban` beside `unlimited`.
        Some(Limit::Unlimited) | None => return false,
    };
    let message = if algorithm == Algorithm::Budget {
        "contradicts `reserve`: a limit with reservations has no bans; remove one of them".to_owned()
    } else if algorithm.has_own_key() {
        let possible = Algorithm::ALL.iter().filter(|algorithm| !algorithm.has_own_key());
        let names: Vec<_> = possible.map(|algorithm| algorithm.name()).collect();
        format!("{} has no bans; expected one of {} as `algorithm`", algorithm.name(), names.join(", "))
    } else if segments.iter().any(|segment| segment.value == Value::Shared) {
        "bans all values that share the counter; expected a counter for each value".to_owned()
    } else if descriptor.quota_mode.or_default() {
        "contradicts `quota_mode: true`, with which the limit does not deny by itself".to_owned()
    } else if is_overdraft {
        "contradicts `overdraft: true`, with which every charge counts; expected a limit without it"
            .to_owned()
    } else {
        return true;
    };
    compiler.error(*at, path, message);
    false
}

/// Reports a limit whose bans list no single client; `None` if so.
fn check_listing(
    compiler: &mut Compiler<'_>,
    raw: &RawBan,
    segments: &[Segment],
    path: &Path<'_>,
) -> Option<()> {
    let Some(Stated { at, .. }) = raw.list_after.stated() else { return Some(()) };
    if segments.iter().any(|segment| segment.value == Value::Open) {
        return Some(());
    }
    let message = "lists all clients, as the limit has one counter for all requests; expected a key whose values have \
                   counters of their own";
    compiler.error(*at, &path.key("list_after"), message);
    None
}

/// Warns of bans that deny more than they should, or nothing.
fn warn(
    compiler: &mut Compiler<'_>,
    descriptor: &RawDescriptor,
    Stated { at, value: raw }: &Stated<RawBan>,
    segments: &[Segment],
    policy: &BanPolicy,
    path: &Path<'_>,
) {
    if let (Some(forgive), false) = (raw.forgive.stated(), policy.remembers()) {
        let message = "has no effect without a `max_duration` above the `duration`";
        compiler.warning(forgive.at, &path.key("forgive"), message);
    }
    let mut open = segments.iter().filter(|segment| segment.value == Value::Open).peekable();
    if open.peek().is_none() {
        let message = "the limit has one counter for all requests, so that a ban denies all of them";
        return compiler.warning(*at, path, message);
    }
    let Some(mode) = raw.mode.stated().filter(|_| policy.mode() == BanMode::Enforce) else { return };
    let path = path.key("mode");
    if descriptor.shadow_mode.or_default() {
        let message = "has no effect beside `shadow_mode: true`, with which bans are only watched";
        compiler.warning(mode.at, &path, message);
    } else if open.all(|segment| ADDRESS_KEYS.contains(&&*segment.key)) {
        let message = "bans all clients behind an address, such as those of an office or a carrier; expected a key \
                       of one client, or `watch`";
        compiler.warning(mode.at, &path, message);
    }
}
