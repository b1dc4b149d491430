//! Keys of a limit whose meaning depends on its quota and algorithm, or on each other.

use std::time::Duration;

use tollgate_core::SyncMode;
use tollgate_core::algorithm::{Algorithm, queue::MAX_QUEUED};

use super::{Compiler, ban, mappings, reporter::StatedLimit, rollout, scope};
use crate::config::problem::Path;
use crate::config::raw::{Field, RawDescriptor, RawRateLimit, Stated};
use crate::{Limit, NotifyThresholds, OnStoreError, Rollout, Rule, Scope, Segment};

/// Reads the keys of the limit at `limit_path` of the descriptor at `path`, as the part of a rule that depends on them; `None`
/// if one is invalid.
pub(super) fn read(
    compiler: &mut Compiler<'_>,
    descriptor: &RawDescriptor,
    raw: &Stated<RawRateLimit>,
    segments: &[Segment],
    path: &Path<'_>,
    limit_path: &Path<'_>,
) -> Option<Rule> {
    let (limit, overdraft) = compiler.limit(raw, limit_path).unzip();
    let is_overdraft = overdraft.unwrap_or_default();
    let stated =
        &StatedLimit { descriptor, segments, raw, path: limit_path, limit: limit.as_ref(), is_overdraft };
    let own_sync = own_sync(compiler, stated);
    let scope = scope::read(compiler, stated);
    let rollout = rollout::read(compiler, stated, scope);
    let sync = sync(compiler, stated, own_sync, rollout.as_ref());
    let (on_store_error, degraded_limit) = degraded(compiler, stated);
    let ban = ban::read(compiler, stated);
    let weights = mappings::weights(compiler, descriptor, limit.as_ref(), path);
    let notify = notify(compiler, stated, scope);
    let retry_after_spread = retry_after_spread(compiler, stated);
    let on_share_exhausted = scope::on_share_exhausted(compiler, stated, scope);
    // All keys are checked before the first invalid one ends the compilation.
    Some(Rule {
        limit: limit?,
        sync: sync?,
        scope,
        on_share_exhausted,
        overdraft: is_overdraft,
        ban: ban?,
        notify: notify?,
        weights: weights?,
        on_store_error,
        degraded_limit,
        retry_after_spread,
        rollout: rollout?,
        ..Rule::default()
    })
}

/// Synchronization of a limit's counters: its own, else the default if the algorithm supports it. `None` if the own one
/// is invalid; checked also if the limit is invalid.
fn own_sync(compiler: &mut Compiler<'_>, limit: &StatedLimit<'_>) -> Option<SyncMode> {
    if limit.limit == Some(&Limit::Unlimited) {
        return Some(SyncMode::Strict);
    }
    let unleased = limit.policy().map(|policy| policy.algorithm()).filter(|one| !one.can_be_leased());
    if matches!(limit.raw.value.sync, Field::Absent) {
        let default = compiler.defaults.sync.filter(|_| unleased.is_none());
        return Some(default.map(|default| default.value).unwrap_or_default());
    }
    let path = limit.path.key("sync");
    let Stated { at, value } = compiler.reporter.word::<SyncMode>(&limit.raw.value.sync, &path)?;
    let Some(algorithm) = unleased else {
        if value.may_lease() {
            compiler.domain.leased.push((compiler.site(at, &path), value));
        }
        return Some(value);
    };
    let name = match algorithm {
        Algorithm::Budget => "a limit with `reserve`",
        algorithm => algorithm.name(),
    };
    match value {
        SyncMode::Strict => {}
        SyncMode::Leased => {
            let message = format!("{name} cannot be leased; expected `strict`");
            return limit.refuse(&mut compiler.reporter, "sync", message);
        }
        SyncMode::Auto => {
            let message =
                format!("works as `strict`: {name} cannot be leased, so each request is a call to the store");
            limit.warn(&mut compiler.reporter, "sync", message);
        }
    }
    Some(SyncMode::Strict)
}

/// Synchronization of a limit, strict where the store has to see every request: it counts each charge of an overdraft, and
/// each hit of a limit that carries unused ones; and a candidate is to be charged by the same requests.
fn sync(
    compiler: &mut Compiler<'_>,
    limit: &StatedLimit<'_>,
    own: Option<SyncMode>,
    rollout: Option<&Rollout>,
) -> Option<SyncMode> {
    let own = own?;
    let raw = &limit.raw.value;
    let message = if limit.is_overdraft {
        let effect = if own == SyncMode::Auto { "works as `strict`" } else { "has no effect" };
        format!("{effect} beside `overdraft: true`, with which the store counts every charge")
    } else if raw.carry.or_default().unused > 0 {
        return Some(SyncMode::Strict);
    } else if rollout.is_some_and(|rollout| rollout.candidate.is_some()) {
        format!(
            "works as `strict` beside a `candidate`, which is charged with each request; expected strict, not {}",
            own.name()
        )
    } else {
        return Some(own);
    };
    if raw.sync.stated().is_some() && own.may_lease() {
        limit.warn(&mut compiler.reporter, "sync", message);
    }
    Some(SyncMode::Strict)
}

/// Reads the policy and the limit while the store fails. The policy is the limit's own, else `local` for one with a
/// `degraded_limit`, else the default.
fn degraded(compiler: &mut Compiler<'_>, limit: &StatedLimit<'_>) -> (Option<OnStoreError>, Option<u32>) {
    let raw = &limit.raw.value;
    let stated = compiler.reporter.word(&raw.on_store_error, &limit.path.key("on_store_error"));
    let Some(Stated { at, value: degraded }) = raw.degraded_limit.stated().copied() else {
        return (stated.or(compiler.defaults.on_store_error).map(|stated| stated.value), None);
    };
    let path = limit.path.key("degraded_limit");
    if let Some(policy) = stated.map(|stated| stated.value).filter(|policy| *policy != OnStoreError::Local) {
        let message = format!(
            "has no effect with `on_store_error: {}`; expected `on_store_error: local`, or only one of the keys",
            policy.name()
        );
        compiler.reporter.error(at, &path, message);
    }
    if let Some(Limit::Quota { quota, policy }) = limit.limit {
        if policy.algorithm().stores_hits() && degraded > MAX_QUEUED {
            let message = format!(
                "is too large; expected a limit of at most {MAX_QUEUED}, since this algorithm stores each hit"
            );
            compiler.reporter.error(at, &path, message);
        } else if u64::from(degraded) > quota.limit {
            let message = "is above `requests_per_unit`: more requests pass while the store fails; \
                           expected a lower limit";
            compiler.reporter.warning(at, &path, message);
        }
    }
    (Some(OnStoreError::Local), Some(degraded))
}

/// Reads the thresholds of a limit; `None` if they are invalid.
fn notify(
    compiler: &mut Compiler<'_>,
    limit: &StatedLimit<'_>,
    scope: Scope,
) -> Option<Option<NotifyThresholds>> {
    let stated = limit.raw.value.notify.valid()?;
    let Some(Stated { value, .. }) = stated.filter(|stated| !stated.value.is_empty()) else {
        return Some(None);
    };
    let Some(thresholds) = NotifyThresholds::new(value.iter().copied()) else {
        let max = NotifyThresholds::MAX_THRESHOLDS;
        let message = format!("has too many percentages; expected at most {max}");
        return limit.refuse(&mut compiler.reporter, "notify", message);
    };
    let (algorithm, scope_name) = (limit.policy()?.algorithm(), scope.name());
    let message = if algorithm.stated() != Algorithm::FixedWindow {
        let name = algorithm.name();
        format!("is not a key of {name}, whose usage never begins anew; expected `algorithm: fixed_window`")
    } else if scope != Scope::Regional {
        format!(
            "contradicts `scope: {scope_name}`, of whose use each region would notify; remove one of them"
        )
    } else {
        return Some(Some(thresholds));
    };
    limit.refuse(&mut compiler.reporter, "notify", message)
}

/// Spread of the times at which a limit's clients return: its own, else the default. A concurrency limit has none: a
/// permit may be released at any moment.
fn retry_after_spread(compiler: &mut Compiler<'_>, limit: &StatedLimit<'_>) -> Option<Duration> {
    let stated = compiler.reporter.retry_after_spread(&limit.raw.value.retry_after_spread, limit.path);
    if !limit.policy()?.algorithm().holds_permits() {
        return stated.or(compiler.defaults.retry_after_spread).map(|stated| stated.value);
    }
    let message =
        "is not a key of concurrency, which denies for a second at a time; expected a limit with a window";
    compiler.reporter.refuse(stated?.at, &limit.path.key("retry_after_spread"), message)
}
