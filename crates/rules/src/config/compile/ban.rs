//! Bans of a limit's counters: `ban`.

use std::{borrow::Cow, rc::Rc};

use tollgate_core::ban::{BanMode, BanParameters, BanPolicy};
use tollgate_core::{algorithm::Algorithm, duration::parse_seconds};

use super::Compiler;
use super::reporter::{Reporter, StatedLimit};
use crate::config::raw::{Field, RawBan, Stated};
use crate::config::{problem::Path, vocabulary::Mapping as _};
use crate::{Limit, Segment, Value};

/// Keys whose values many clients may share.
const ADDRESS_KEYS: [&str; 2] = ["remote_address", "masked_remote_address"];

/// Reads the bans of a limit; `None` if they are invalid.
pub(super) fn read(compiler: &mut Compiler<'_>, limit: &StatedLimit<'_>) -> Option<Option<BanPolicy>> {
    let Some(stated) = limit.raw.value.ban.valid()? else { return Some(None) };
    let path = limit.path.key("ban");
    let parameters = parameters(&mut compiler.reporter, &stated.value, &path);
    let contradiction = contradiction(limit);
    if let Some(message) = &contradiction {
        compiler.reporter.error(stated.at, &path, message);
    }
    let parameters = parameters?;
    // An invalid limit was reported, and so was a `ban` beside `unlimited`.
    let (None, Some(Limit::Quota { quota, .. })) = (contradiction, limit.limit) else { return None };
    match BanPolicy::new(&parameters, *quota) {
        Ok(policy) => {
            check_listing(compiler, &stated.value, limit.segments, &path)?;
            warn(compiler, limit, stated, &policy, &path);
            Some(Some(policy))
        }
        Err(error) => {
            let at = stated.value.at(error.key).unwrap_or(stated.at);
            compiler.reporter.refuse(at, &path.key(error.key), format!("is out of range; {error}"))
        }
    }
}

/// Reads the keys; `None` if one is invalid.
fn parameters(reporter: &mut Reporter<'_>, raw: &RawBan, path: &Path<'_>) -> Option<BanParameters> {
    let default = BanParameters::default();
    let threshold = raw.threshold.read_or(default.threshold, |stated| Some(stated.value));
    let mut seconds = |key, field: &Field<Rc<str>>| {
        let path = path.key(key);
        let any = 0..=u32::MAX;
        field.read_or(None, |stated| reporter.duration(stated, &path, parse_seconds, any, "any").map(Some))
    };
    let interval = seconds("interval", &raw.interval);
    let duration = seconds("duration", &raw.duration);
    let max_duration = seconds("max_duration", &raw.max_duration);
    let forgive = seconds("forgive", &raw.forgive);
    let list_after = raw.list_after.read_or(None, |stated| Some(Some(stated.value)));
    let mode = reporter.word_or(default.mode, &raw.mode, &path.key("mode"));
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

/// Reason why the counters of a valid limit cannot be banned.
fn contradiction(limit: &StatedLimit<'_>) -> Option<Cow<'static, str>> {
    let policy = limit.policy()?;
    let algorithm = policy.algorithm();
    let message = if policy.unused_percent() > 0 {
        "contradicts `carry` of unused hits, which needs all of them; expected a limit without it"
    } else if algorithm == Algorithm::Budget {
        "contradicts `reserve`: a limit with reservations has no bans; remove one of them"
    } else if algorithm.has_own_key() {
        let possible = Algorithm::ALL.iter().filter(|algorithm| !algorithm.has_own_key());
        let names: Vec<_> = possible.map(|algorithm| algorithm.name()).collect();
        let (name, names) = (algorithm.name(), names.join(", "));
        return Some(format!("{name} has no bans; expected one of {names} as `algorithm`").into());
    } else if limit.segments.iter().any(|segment| segment.value == Value::Shared) {
        "bans all values that share the counter; expected a counter for each value"
    } else if limit.descriptor.quota_mode.or_default() {
        "contradicts `quota_mode: true`, with which the limit does not deny by itself"
    } else if limit.is_overdraft {
        "contradicts `overdraft: true`, with which every charge counts; expected a limit without it"
    } else {
        return None;
    };
    Some(message.into())
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
    compiler.reporter.refuse(*at, &path.key("list_after"), message)
}

/// Warns of bans that deny more than they should, or nothing.
fn warn(
    compiler: &mut Compiler<'_>,
    limit: &StatedLimit<'_>,
    Stated { at, value: raw }: &Stated<RawBan>,
    policy: &BanPolicy,
    path: &Path<'_>,
) {
    if let (Some(forgive), false) = (raw.forgive.stated(), policy.remembers()) {
        let message = "has no effect without a `max_duration` above the `duration`";
        compiler.reporter.warning(forgive.at, &path.key("forgive"), message);
    }
    let mut open = limit.segments.iter().filter(|segment| segment.value == Value::Open).peekable();
    if open.peek().is_none() {
        let message = "the limit has one counter for all requests, so that a ban denies all of them";
        return compiler.reporter.warning(*at, path, message);
    }
    let Some(mode) = raw.mode.stated().filter(|_| policy.mode == BanMode::Enforce) else { return };
    let path = path.key("mode");
    if limit.descriptor.shadow_mode.or_default() {
        let message = "has no effect beside `shadow_mode: true`, with which bans are only watched";
        compiler.reporter.warning(mode.at, &path, message);
    } else if open.all(|segment| ADDRESS_KEYS.contains(&&*segment.key)) {
        let message = "bans all clients behind an address, such as those of an office or a carrier; expected a key \
                       of one client, or `watch`";
        compiler.reporter.warning(mode.at, &path, message);
    }
}
