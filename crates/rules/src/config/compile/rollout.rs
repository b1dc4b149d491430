//! Gradual changes of a limit: `enforce_percent` and `candidate`.

use tollgate_core::{EnforcedShare, PathStep, algorithm::Policy};

use super::{Compiler, reporter::StatedLimit};
use crate::{Candidate, Limit, Rollout, Scope, Value, config::raw::Stated, rule::record_id_of};

/// Reads the rollout of a limit; `None` if it is invalid.
pub(super) fn read(compiler: &mut Compiler<'_>, limit: &StatedLimit<'_>, scope: Scope) -> Option<Rollout> {
    let enforced = enforced(compiler, limit);
    let candidate = candidate(compiler, limit, scope);
    Some(Rollout { enforced: enforced?, candidate: candidate?.map(Box::new) })
}

fn enforced(compiler: &mut Compiler<'_>, limit: &StatedLimit<'_>) -> Option<Option<EnforcedShare>> {
    let Some(&Stated { value: share, .. }) = limit.raw.value.enforce_percent.valid()? else {
        return Some(None);
    };
    if limit.descriptor.shadow_mode.or_default() {
        let message =
            "contradicts `shadow_mode: true`, which enforces the limit for no key; remove one of them";
        return limit.refuse(&mut compiler.reporter, "enforce_percent", message);
    }
    if share.is_partial() && limit.segments.iter().all(|segment| segment.value != Value::Open) {
        let message = "enforces all or nothing: all requests share one counter, and so one key; expected a limit \
                       whose counters differ by client";
        limit.warn(&mut compiler.reporter, "enforce_percent", message);
    }
    Some(Some(share))
}

fn candidate(
    compiler: &mut Compiler<'_>,
    limit: &StatedLimit<'_>,
    scope: Scope,
) -> Option<Option<Candidate>> {
    let Some(stated) = limit.raw.value.candidate.valid()? else { return Some(None) };
    let path = limit.path.key("candidate");
    let (candidate, overdraft) = compiler.quota(&stated.value, &path)?;
    let Limit::Quota { quota, policy } = candidate else { return None };
    if let Some(reason) = reason_not_to_compare(limit.policy()?, &policy, scope) {
        return compiler.reporter.refuse(stated.at, &path, reason);
    }
    compiler.domain.candidates.push(compiler.site(stated.at, &path));
    let record = record_id_of(limit.segments, &[PathStep::Candidate], policy.algorithm()).under(&policy);
    Some(Some(Candidate { quota, policy, overdraft, record }))
}

/// Reason why a limit cannot be compared with its candidate, if there is one.
fn reason_not_to_compare(of_rule: &Policy, candidate: &Policy, scope: Scope) -> Option<&'static str> {
    if of_rule.algorithm().takes_leases() || candidate.algorithm().takes_leases() {
        return Some(match of_rule.reserve_terms().or(candidate.reserve_terms()) {
            Some(_) => {
                "cannot be compared: hits are reserved until requests end, and the candidate's would never be settled; \
                 expected limits without `reserve`"
            }
            None => {
                "cannot be compared: a concurrency limit holds permits until requests end, and the candidate's would \
                 never be released; expected limits with a window"
            }
        });
    }
    match scope {
        Scope::Regional => None,
        Scope::Global => Some(
            "cannot be compared beside `scope: global`, where a region decides by its share of the limit; expected \
             `scope: regional`",
        ),
        Scope::Primary => Some(
            "cannot be compared beside `scope: primary`, where another region decides; expected `scope: regional`",
        ),
    }
}
