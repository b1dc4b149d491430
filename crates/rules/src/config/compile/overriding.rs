//! Compilation of overrides: a part of a `rate_limit` over the values of a rule.

use std::{rc::Rc, sync::Arc};

use tollgate_core::algorithm::{Algorithm, Policy};
use tollgate_core::ban::BanPolicy;

use super::{Budget, Compiler, Defaults, DomainBuilder, Reporter};
use crate::config::problem::{Path, Problems, Severity};
use crate::config::raw::{Field, RawDescriptor, RawRateLimit, Stated};
use crate::config::{Options, reader::read_rate_limit, vocabulary::Mapping as _};
use crate::{Derived, Limit, NotifyThresholds, Rule};

/// Name of the text in problems.
const SOURCE: &str = "override";

/// Returns the rule with the keys that `rate_limit` states, a mapping of keys of `rate_limit` in YAML or JSON. The others
/// have the values of the rule, as the limits of a file have the values of its `defaults`.
///
/// # Errors
/// All problems, one a line.
pub fn override_rule(domain: &str, rule: &Rule, rate_limit: &str) -> Result<Rule, String> {
    let mut problems = Problems::new(false);
    let overridden = compiled(domain, rule, rate_limit, &mut problems);
    match (overridden, problems.finish()) {
        (Some(overridden), Ok(_)) => Ok(overridden),
        (_, Ok(report) | Err(report)) => {
            let errors = report.problems.iter().filter(|problem| problem.severity == Severity::Error);
            let texts: Vec<String> = errors
                .map(|problem| match &*problem.path {
                    "" => problem.message.clone(),
                    path => format!("{path}: {}", problem.message),
                })
                .collect();
            Err(match texts.is_empty() {
                true => "the override is empty; expected a key of `rate_limit`".to_owned(),
                false => texts.join("\n"),
            })
        }
    }
}

fn compiled(domain: &str, rule: &Rule, rate_limit: &str, problems: &mut Problems) -> Option<Rule> {
    let path = Path::Root.key("rate_limit");
    let raw = read_rate_limit(SOURCE, rate_limit.as_bytes(), &path, problems)?;
    if !check_keys(rule, &raw, problems, &path) {
        return None;
    }
    let file: Rc<str> = SOURCE.into();
    let mut builder = DomainBuilder::new(domain.into(), file.clone());
    let mut compiler = Compiler {
        reporter: Reporter { file: &file, problems },
        defaults: Defaults::of_rule(rule),
        domain: &mut builder,
        budget: &mut Budget::default(),
        options: Options::default(),
    };
    let compiled = compiler.rule(&descriptor_of(rule), &raw, &rule.segments, &Path::Root, &path)?;
    drop(builder);
    let compiled = Arc::into_inner(compiled)?;
    let carried = carried(rule, compiled, &raw.value);
    carried.map_err(|(key, message)| problems.error(SOURCE, raw.at, path.key(key), message)).ok()
}

/// Reports keys that an override does not change. Whether it has only others.
fn check_keys(rule: &Rule, raw: &Stated<RawRateLimit>, problems: &mut Problems, path: &Path<'_>) -> bool {
    if rule.shedding.is_some() {
        let message = "the rule sheds by utilization; expected a rule with a limit";
        problems.error(SOURCE, raw.at, Path::Root, message);
        return false;
    }
    for (key, at) in raw.value.stated_keys() {
        let message = match key {
            "inherit" => {
                "is not a key of an override; expected other keys: those that it omits keep the values of the rule"
            }
            "name" | "scope" => "identifies the rule and cannot be overridden; expected keys of its limit",
            _ => continue,
        };
        problems.error(SOURCE, at, path.key(key), message);
        return false;
    }
    if let Some(replaces) = raw.value.replaces.first() {
        let message = "concerns other rules and cannot be overridden; expected keys of the limit";
        problems.error(SOURCE, replaces.at, path.key("replaces"), message);
        return false;
    }
    raw.value.stated_keys().next().is_some()
}

/// The descriptor of a rule, as far as the keys of its limit depend on it.
fn descriptor_of(rule: &Rule) -> RawDescriptor {
    let flag = |value| Field::Stated(Stated::whole(value));
    RawDescriptor {
        shadow_mode: flag(rule.shadow_mode),
        quota_mode: flag(rule.quota_mode),
        detailed_metric: flag(rule.detailed_metric),
        ..RawDescriptor::default()
    }
}

/// Key of an override that the rule cannot have, and the reason.
type KeyProblem = (&'static str, String);

/// Gives the compiled limit what it has of the rule.
fn carried(rule: &Rule, mut compiled: Rule, raw: &RawRateLimit) -> Result<Rule, KeyProblem> {
    check_transition(&rule.limit, &compiled.limit)?;
    match (rule.ban, raw.ban.is_present()) {
        (Some(ban), false) => compiled.ban = Some(carried_ban(ban, &compiled)?),
        (None, true) => {
            let message = "is that of a rule without `ban`, which counts none; change the rule itself";
            return Err(("ban", message.to_owned()));
        }
        _ => {}
    }
    if let (Some(notify), false) = (&rule.notify, raw.notify.is_present()) {
        compiled.notify = carried_notify(notify, &compiled)?;
    }
    if let Some(limit) = carried_degraded_limit(rule, &compiled, raw) {
        compiled.degraded_limit = Some(limit);
    }
    if !raw.enforce_percent.is_present() {
        compiled.rollout.enforced = rule.rollout.enforced;
    }
    if !raw.candidate.is_present() {
        compiled.rollout.candidate.clone_from(&rule.rollout.candidate);
    }
    Ok(with_identity(rule, compiled))
}

/// The limit while the store fails, if the override states none: no more pass then than otherwise.
fn carried_degraded_limit(rule: &Rule, compiled: &Rule, raw: &RawRateLimit) -> Option<u32> {
    let is_stated = raw.degraded_limit.is_present() || raw.on_store_error.is_present();
    match (&compiled.limit, rule.degraded_limit) {
        (Limit::Quota { quota, .. }, Some(degraded)) if !is_stated => {
            Some(degraded.min(u32::try_from(quota.limit).unwrap_or(u32::MAX)))
        }
        _ => None,
    }
}

/// Gives the override what identifies the rule, and what it does not state.
fn with_identity(rule: &Rule, overridden: Rule) -> Rule {
    // A new field needs a decision: compiled, with the rule's value as a default, or carried over here.
    let Rule {
        limit: _,
        part,
        shedding: _,
        sync: _,
        scope: _,
        on_share_exhausted: _,
        overdraft: _,
        ban: _,
        notify: _,
        weights,
        on_store_error: _,
        degraded_limit: _,
        retry_after_spread: _,
        name,
        replaces,
        shadow_mode: _,
        quota_mode: _,
        detailed_metric: _,
        metadata,
        segments: _,
        origin,
        rollout: _,
        stated,
        derived: _,
    } = rule;
    let holds_permits = overridden.algorithm().is_none_or(Algorithm::holds_permits);
    Rule {
        part: part.clone(),
        weights: weights.clone().filter(|_| !holds_permits),
        name: name.clone(),
        replaces: replaces.clone(),
        metadata: metadata.clone(),
        origin: origin.clone(),
        stated: stated.clone(),
        derived: Derived::for_override(rule, &overridden),
        ..overridden
    }
}

/// Reports limits between which counters cannot change while requests hold permits, or would be read wrongly.
fn check_transition(rule: &Limit, overridden: &Limit) -> Result<(), KeyProblem> {
    let leased = |limit: &Limit| limit.policy().map(Policy::algorithm).filter(|one| one.takes_leases());
    if leased(rule) != leased(overridden) {
        let is_budget = [rule, overridden].into_iter().any(|limit| leased(limit) == Some(Algorithm::Budget));
        let (key, name, held) = match (overridden, is_budget) {
            (Limit::Unlimited, true) => ("unlimited", "`reserve`", "reservations"),
            (Limit::Unlimited, false) => ("unlimited", Algorithm::Concurrency.name(), "permits"),
            (_, true) => ("reserve", "`reserve`", "reservations"),
            (_, false) => ("algorithm", Algorithm::Concurrency.name(), "permits"),
        };
        return Err((
            key,
            format!("changes from or to {name}, whose {held} are held; change the rule itself"),
        ));
    }
    if let (
        Limit::Quota { quota: before, policy: policy_before },
        Limit::Quota { quota: after, policy: policy_after },
    ) = (rule, overridden)
        && policy_before.algorithm() == policy_after.algorithm()
        && policy_after.depends_on_former()
        && before.window.seconds() != after.window.seconds()
    {
        let message = format!(
            "changes the length of a sliding window of {} s; expected that length, or another algorithm",
            before.window.seconds()
        );
        return Err(("window", message));
    }
    Ok(())
}

/// The thresholds of the rule for the limit of the override, if it is one.
fn carried_notify(
    notify: &NotifyThresholds,
    compiled: &Rule,
) -> Result<Option<NotifyThresholds>, KeyProblem> {
    match compiled.algorithm().map(Algorithm::stated) {
        None => Ok(None),
        Some(Algorithm::FixedWindow) => Ok(Some(notify.clone())),
        Some(other) => {
            let name = other.name();
            let message =
                format!("{name} has no thresholds, and the rule has `notify`; expected `notify: []` too");
            Err(("algorithm", message))
        }
    }
}

/// The bans of the rule for the limit of the override.
fn carried_ban(ban: BanPolicy, compiled: &Rule) -> Result<BanPolicy, KeyProblem> {
    Err(match &compiled.limit {
        Limit::Quota { quota, policy } if !policy.algorithm().has_own_key() && !compiled.overdraft => {
            return Ok(ban.with_quota(*quota));
        }
        Limit::Quota { policy, .. } if policy.algorithm().has_own_key() => {
            let name = policy.algorithm().name();
            ("algorithm", format!("{name} has no bans, and the rule has `ban`; expected another one"))
        }
        Limit::Quota { .. } => ("overdraft", "contradicts the `ban` of the rule; expected false".to_owned()),
        Limit::Unlimited => {
            ("unlimited", "contradicts the `ban` of the rule; switch the rule off instead".to_owned())
        }
    })
}
