//! Regions that enforce a limit together: `scope`.

use tollgate_core::algorithm::{Algorithm, Policy};

use super::{Compiler, reporter::StatedLimit};
use crate::config::{raw::Stated, vocabulary::Mapping as _};
use crate::{Limit, OnShareExhausted, Scope, TableSize};

/// Hits of a share below which the shares of an uneven traffic lose much of a limit.
const MIN_SHARE: u32 = 20;

/// Reads the scope of a limit: its own, else the default.
pub(super) fn read(compiler: &mut Compiler<'_>, limit: &StatedLimit<'_>) -> Scope {
    let raw = limit.raw;
    let own: Option<Stated<Scope>> = compiler.reporter.word(&raw.value.scope, &limit.path.key("scope"));
    let stated = own.or(compiler.defaults.scope);
    let (Some(Stated { value: scope, .. }), Some(Limit::Quota { quota, policy })) = (stated, limit.limit)
    else {
        return Scope::Regional;
    };
    if scope == Scope::Regional {
        return scope;
    }
    // A default is reported at its limits; most of them are in the same file.
    let at = own.map_or(raw.at, |own| own.at);
    let (name, is_global) = (scope.name(), scope == Scope::Global);
    let conflicts = [
        (
            quota.is_wide(),
            ("requests_per_unit", raw.at),
            format!("is too large for `scope: {name}`; expected at most 4294967295"),
        ),
        (
            is_global && !policy.min_interval().is_zero(),
            ("min_interval", at),
            "contradicts `scope: global`: regions cannot keep an interval between their hits; remove one of them"
                .to_owned(),
        ),
        (
            policy.reserve_terms().is_some(),
            ("reserve", raw.at),
            format!("contradicts `scope: {name}`: a lease is held in one region; expected `scope: regional`"),
        ),
        (
            is_global && limit.is_overdraft,
            ("overdraft", at),
            "contradicts `scope: global`: a region cannot charge beyond its share; remove one of them".to_owned(),
        ),
    ];
    for (_, (key, at), message) in conflicts.into_iter().filter(|(is_conflict, ..)| *is_conflict) {
        compiler.reporter.error(raw.value.at(key).unwrap_or(at), &limit.path.key(key), message);
    }
    if let Some(message) = doubt(compiler.options.regions, scope, limit, quota.limit, policy) {
        compiler.reporter.warning(at, &limit.path.key("scope"), message);
    }
    scope
}

/// Doubt whether regions enforce a limit of `hits` as meant.
fn doubt(
    regions: TableSize,
    scope: Scope,
    limit: &StatedLimit<'_>,
    hits: u64,
    policy: &Policy,
) -> Option<String> {
    match regions {
        TableSize::Unknown => None,
        TableSize::NoTable => {
            let expected = "expected `--regions`, or `regional`";
            Some(format!("`{}` has no effect without a region table; {expected}", scope.name()))
        }
        TableSize::Regions { sharing, .. } if scope == Scope::Global => {
            let waits = limit.raw.value.on_share_exhausted.text() == OnShareExhausted::Wait.name();
            doubt_of_shares(hits, policy, sharing).filter(|_| !waits)
        }
        TableSize::Regions { has_primary, .. } => (!has_primary).then(|| {
            "the region table names no primary region, so that `on_store_error` decides; expected `primary: REGION` \
             in the table"
                .to_owned()
        }),
    }
}

/// Reads the decision of hits while a loan request is in flight: its own, else the default of a limit that regions lend
/// parts of.
pub(super) fn on_share_exhausted(
    compiler: &mut Compiler<'_>,
    limit: &StatedLimit<'_>,
    scope: Scope,
) -> OnShareExhausted {
    let path = limit.path.key("on_share_exhausted");
    let raw = &limit.raw.value;
    let own = compiler.reporter.word(&raw.on_share_exhausted, &path);
    let Some(policy) = limit.policy() else { return OnShareExhausted::Deny };
    let is_lent = scope == Scope::Global && policy.can_be_lent();
    let has_ban = raw.ban.stated().is_some();
    match own.or(compiler.defaults.on_share_exhausted) {
        Some(Stated { at, value: OnShareExhausted::Wait }) if is_lent && has_ban => {
            if own.is_some() {
                let message = "contradicts `ban`: a hit that waits is decided more than once, and each denial would count; \
                               remove one of them";
                compiler.reporter.error(at, &path, message);
            }
            OnShareExhausted::Deny
        }
        Some(stated) if is_lent => stated.value,
        _ => {
            if let Some(Stated { at, value: OnShareExhausted::Wait }) = own {
                let message = "has no effect: only limits that regions lend can wait; expected `scope: global` with a \
                               token bucket, or a fixed or sliding window without `timezone`, `anchor` or unused hits \
                               carried over";
                compiler.reporter.error(at, &path, message);
            }
            OnShareExhausted::Deny
        }
    }
}

/// Doubt of a limit that is small for its number of regions.
fn doubt_of_shares(limit: u64, policy: &Policy, regions: u32) -> Option<String> {
    let burst = policy.burst().filter(|_| policy.algorithm() == Algorithm::TokenBucket);
    if regions < 2 || limit == 0 {
        return None;
    }
    let share = limit.checked_div(regions.into())?;
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
