//! Several limits of one descriptor: `rate_limits`.

use std::{collections::BTreeMap, sync::Arc};

use tollgate_core::{PathStep, algorithm::Algorithm};

use super::Compiler;
use crate::config::raw::{Field, RawDescriptor, RawLimit, RawRateLimit, Stated};
use crate::config::{layers, problem::Path, vocabulary::Mapping as _, yaml::excerpt};
use crate::{Limit, LimitPart, Rule, Scope, Segment, rule::record_id_of};

/// Maximum number of limits of one descriptor: each request checks all of them.
const MAX_LIMITS: usize = 8;

/// Compiles the limits of a descriptor, each to a rule, in their order.
pub(super) fn rules(
    compiler: &mut Compiler<'_>,
    raw: &RawDescriptor,
    stated: &Stated<Vec<RawLimit>>,
    segments: &[Segment],
    path: &Path<'_>,
) -> Vec<Arc<Rule>> {
    let list = path.key("rate_limits");
    if !check_list(compiler, raw, stated, &list) {
        return Vec::new();
    }
    let mut rules: Vec<Arc<Rule>> = Vec::new();
    let mut labels = BTreeMap::new();
    for RawLimit { index, limit } in &stated.value {
        let limit_path = list.item(*index);
        let is_possible = check_keys(compiler, &limit.value, &limit_path);
        let Some(rule) = compiler.rule(raw, limit, segments, path, &limit_path) else { continue };
        if !is_possible || !check_rule(compiler, limit, &rule, &limit_path) {
            continue;
        }
        let label = rule.part.iter().map(|part| part.label.clone()).collect::<String>();
        if let Some(line) = labels.insert(label.clone(), limit.at.line()) {
            let message = format!(
                "has the counter of the limit in line {line}: both are `{}`; expected another window, or a `name`",
                excerpt(&label)
            );
            compiler.reporter.error(limit.at, &limit_path, message);
            continue;
        }
        rules.push(rule);
    }
    rules
}

/// Identity of a limit of the list.
pub(super) fn part_of(raw: &RawRateLimit, limit: &Limit, segments: &[Segment]) -> LimitPart {
    let label = match (raw.name.text(), limit) {
        ("", Limit::Quota { quota, .. }) => match quota.window.multiplier().get() {
            1 => quota.window.unit().to_string(),
            _ => format!("{}s", quota.window.seconds()),
        },
        (name, _) => name.to_owned(),
    };
    let common = record_id_of(segments, &[PathStep::Limit("")], Algorithm::default());
    LimitPart { label: label.into(), common }
}

fn check_list(
    compiler: &mut Compiler<'_>,
    raw: &RawDescriptor,
    Stated { at, value: limits }: &Stated<Vec<RawLimit>>,
    list: &Path<'_>,
) -> bool {
    let message = if raw.rate_limit.is_present() {
        "contradicts `rate_limit`; expected only one of them".to_owned()
    } else if limits.is_empty() {
        "is empty; expected one limit or more".to_owned()
    } else if limits.len() > MAX_LIMITS {
        format!("has {} limits; expected at most {MAX_LIMITS}", limits.len())
    } else if raw.quota_mode.or_default() {
        "contradicts `quota_mode: true`, with which a limit denies only together with all others of the request; \
         expected one `rate_limit`"
            .to_owned()
    } else {
        return true;
    };
    compiler.reporter.error(*at, list, message);
    false
}

/// Reports keys that one of several limits cannot have.
fn check_keys(compiler: &mut Compiler<'_>, raw: &RawRateLimit, path: &Path<'_>) -> bool {
    let keys = [
        (
            "unlimited",
            raw.unlimited.or_default(),
            "has no effect beside other limits; expected a limit, or no element",
        ),
        (
            "sync",
            !matches!(raw.sync.text(), "" | "strict"),
            "cannot be leased: several limits are charged all or none, in one step; expected `sync: strict`",
        ),
        (
            "on_share_exhausted",
            raw.on_share_exhausted.text() == "wait",
            "cannot wait for a loan: several limits are charged all or none, in one step; expected \
             `on_share_exhausted: deny`",
        ),
        (
            "reserve",
            raw.reserve.is_present(),
            "is not a key of `rate_limits`: a lease settles one limit of a descriptor; expected one `rate_limit`",
        ),
        (
            "inherit",
            layers::inherit_of(raw).is_some(),
            "is not a key of `rate_limits`; expected all keys of the limit",
        ),
        (
            "candidate",
            raw.candidate.is_present(),
            "is not a key of `rate_limits`: denials of the other limits hide the demand; expected one `rate_limit`",
        ),
    ];
    let mut is_possible = true;
    for (key, is_conflict, message) in keys {
        if let Some(at) = raw.at(key).filter(|_| is_conflict) {
            compiler.reporter.error(at, &path.key(key), message);
            is_possible = false;
        }
    }
    is_possible && !matches!(raw.sync, Field::Invalid)
}

/// Reports a limit that cannot be charged all or none with others: its permits would be held, or the primary region decides it.
fn check_rule(
    compiler: &mut Compiler<'_>,
    limit: &Stated<RawRateLimit>,
    rule: &Rule,
    path: &Path<'_>,
) -> bool {
    let (key, message) = if rule.scope == Scope::Primary {
        let message = "cannot be `primary` for one of several limits: they are charged all or none, in one region; \
                       expected another scope, or one `rate_limit`";
        ("scope", message)
    } else if rule.algorithm().is_some_and(Algorithm::holds_permits) {
        let message = "`concurrency` cannot be one of several limits: a lease releases the permits of one limit of a \
                       descriptor; expected a descriptor of its own, which the request has too";
        ("algorithm", message)
    } else {
        return true;
    };
    compiler.reporter.error(limit.value.at(key).unwrap_or(limit.at), &path.key(key), message);
    false
}
