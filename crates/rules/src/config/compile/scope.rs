//! Regions that enforce a limit together: `scope`.

use tollgate_core::{
    algorithm::{Algorithm, Policy},
    quota::Quota,
};

use super::descriptor::Compiler;
use crate::{
    Limit, OnShareExhausted, Scope, TableSize,
    config::{
        problem::Path,
        raw::{RawRateLimit, Stated},
        yaml::Position,
    },
};

/// Hits of a share below which the shares of an uneven traffic lose much of a limit.
const MIN_SHARE: u32 = 20;

/// Reads the scope of a limit: its own, else the default.
pub(super) fn read(
    compiler: &mut Compiler<'_>,
    raw: &Stated<RawRateLimit>,
    (limit, is_overdraft): (Option<&Limit>, bool),
    path: &Path<'_>,
) -> Scope {
    let own = compiler.reporter().scope(&raw.value.scope, path);
    let stated = own.or(compiler.defaults.scope);
    let (Some(stated), Some(Limit::Quota { quota, policy })) = (stated, limit) else {
        return Scope::Regional;
    };
    check_amount(compiler, raw, stated.value, *quota, path);
    match stated.value {
        Scope::Regional => {}
        Scope::Global => {
            check_global(compiler, raw, (stated, own.is_some()), (*quota, policy, is_overdraft), path);
        }
        Scope::Primary => {
            check_reserve(compiler, raw, policy, Scope::Primary, path);
            warn_of_primary(compiler, if own.is_some() { stated.at } else { raw.at }, path);
        }
    }
    stated.value
}

/// Refuses a limit of more than 32 bits where regions exchange its hits.
fn check_amount(
    compiler: &mut Compiler<'_>,
    raw: &Stated<RawRateLimit>,
    scope: Scope,
    quota: Quota,
    path: &Path<'_>,
) {
    if scope != Scope::Regional && quota.is_wide() {
        let at = raw.value.requests_per_unit.stated().map_or(raw.at, |limit| limit.at);
        let message = format!("is too large for `scope: {}`; expected at most 4294967295", scope.name());
        compiler.error(at, &path.key("requests_per_unit"), message);
    }
}

/// Reports what a limit with shares cannot do.
fn check_global(
    compiler: &mut Compiler<'_>,
    raw: &Stated<RawRateLimit>,
    (stated, is_own): (Stated<Scope>, bool),
    (quota, policy, is_overdraft): (Quota, &Policy, bool),
    path: &Path<'_>,
) {
    check_interval(compiler, raw, policy, stated, is_own, path);
    check_reserve(compiler, raw, policy, Scope::Global, path);
    if is_overdraft {
        let at = raw.value.overdraft.stated().map(|overdraft| overdraft.at);
        let at = at.unwrap_or(if is_own { stated.at } else { raw.at });
        let message =
            "contradicts `scope: global`: a region cannot charge beyond its share; remove one of them";
        compiler.error(at, &path.key("overdraft"), message);
    }
    // A default was reported at its limits; most of them are in the same file.
    let at = if is_own { stated.at } else { raw.at };
    let path = path.key("scope");
    match compiler.options.regions {
        TableSize::Unknown => {}
        TableSize::NoTable => {
            let message =
                "`global` has no effect without a region table; expected `--regions`, or `regional`";
            compiler.warning(at, &path, message);
        }
        TableSize::Regions { sharing, .. } => {
            let stated = raw.value.on_share_exhausted.stated();
            let waits = stated.is_some_and(|stated| &*stated.value == OnShareExhausted::Wait.name());
            if let Some(message) = warning(quota.limit, policy, sharing).filter(|_| !waits) {
                compiler.warning(at, &path, message);
            }
        }
    }
}

/// Warns of a limit for which there is no primary region.
fn warn_of_primary(compiler: &mut Compiler<'_>, at: Position, path: &Path<'_>) {
    let message = match compiler.options.regions {
        TableSize::Unknown | TableSize::Regions { has_primary: true, .. } => return,
        TableSize::NoTable => {
            "`primary` has no effect without a region table; expected `--regions`, or `regional`"
        }
        TableSize::Regions { has_primary: false, .. } => {
            "the region table names no primary region, so that `on_store_error` decides; expected `primary: REGION` \
             in the table"
        }
    };
    compiler.warning(at, &path.key("scope"), message);
}

/// Reads the decision of hits while a loan request is in flight: its own, else the default of a limit that regions lend
/// parts of.
pub(super) fn on_share_exhausted(
    compiler: &mut Compiler<'_>,
    raw: &Stated<RawRateLimit>,
    (limit, scope): (Option<&Limit>, Scope),
    path: &Path<'_>,
) -> OnShareExhausted {
    let own = compiler.reporter().on_share_exhausted(&raw.value.on_share_exhausted, path);
    let Some(Limit::Quota { policy, .. }) = limit else { return OnShareExhausted::Deny };
    let is_lent = scope == Scope::Global && policy.can_be_lent();
    let has_ban = raw.value.ban.stated().is_some();
    match own.or(compiler.defaults.on_share_exhausted) {
        Some(Stated { at, value: OnShareExhausted::Wait }) if is_lent && has_ban => {
            if own.is_some() {
                let message = "contradicts `ban`: a hit that waits is decided more than once, and each denial would count; \
                               remove one of them";
                compiler.error(at, &path.key("on_share_exhausted"), message);
            }
            OnShareExhausted::Deny
        }
        Some(stated) if is_lent => stated.value,
        _ => {
            if let Some(Stated { at, value: OnShareExhausted::Wait }) = own {
                let message = "has no effect: only limits that regions lend can wait; expected `scope: global` with a \
                               token bucket, or a fixed or sliding window without `timezone`, `anchor` or unused hits \
                               carried over";
                compiler.error(at, &path.key("on_share_exhausted"), message);
            }
            OnShareExhausted::Deny
        }
    }
}

/// Refuses a minimum interval, which regions cannot keep together.
fn check_interval(
    compiler: &mut Compiler<'_>,
    raw: &Stated<RawRateLimit>,
    policy: &Policy,
    scope: Stated<Scope>,
    is_own: bool,
    path: &Path<'_>,
) {
    if policy.min_interval().is_zero() {
        return;
    }
    let message =
        "contradicts `scope: global`: regions cannot keep an interval between their hits; remove one of them";
    let at = raw.value.min_interval.stated().map(|interval| interval.at);
    let at = at.unwrap_or(if is_own { scope.at } else { raw.at });
    compiler.error(at, &path.key("min_interval"), message);
}

/// Refuses reservations, which no region can hold for the others.
fn check_reserve(
    compiler: &mut Compiler<'_>,
    raw: &Stated<RawRateLimit>,
    policy: &Policy,
    scope: Scope,
    path: &Path<'_>,
) {
    if policy.reserve_terms().is_some() {
        let at = raw.value.reserve.stated().map_or(raw.at, |reserve| reserve.at);
        let scope = scope.name();
        let message = format!(
            "contradicts `scope: {scope}`: a lease is held in one region; expected `scope: regional`"
        );
        compiler.error(at, &path.key("reserve"), message);
    }
}

/// Warning of a limit that is small for its number of regions.
fn warning(limit: u64, policy: &Policy, regions: u32) -> Option<String> {
    let burst = policy.burst().filter(|_| policy.algorithm() == Algorithm::TokenBucket);
    let share = limit.checked_div(regions.into())?;
    if regions < 2 || limit == 0 {
        return None;
    }
    if let Some(burst) = burst.filter(|burst| *burst < regions.into()) {
        return Some(format!(
            "a burst of {burst} is less than a token for each of {regions} regions, so that some admit nothing; \
             expected a burst of at least {regions}"
        ));
    }
    (share < u64::from(MIN_SHARE)).then(|| {
        format!(
            "shares of {share} hits, for {regions} regions, deny while the limit is not exhausted where traffic is \
             uneven; expected a limit of at least {}, or `regional`",
            regions.saturating_mul(MIN_SHARE)
        )
    })
}
