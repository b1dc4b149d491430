//! Text form of a limit.

use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Policy},
    quota::Quota,
};
use tollgate_rules::{Domain, Limit, Rule, Shedding};

/// Text form of a rule's limit: quota, algorithm with its parameters, and modes.
pub fn limit_text(domain: &Domain, rule: &Rule) -> String {
    if let Some(shedding) = &rule.shedding {
        return format!("{}{}", shedding_text(shedding), modes(rule));
    }
    match rule.limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Quota { quota, policy } => {
            let sync = match domain.sync_of(rule) {
                SyncMode::Strict => "",
                SyncMode::Leased => ", leased",
            };
            let overdraft = if rule.overdraft { overdraft_text(&policy) } else { String::new() };
            let spread =
                rule.retry_after_spread.map(|spread| format!(", retry_after_spread {}s", spread.as_secs()));
            let spread = spread.unwrap_or_default();
            format!("{}{sync}{overdraft}{spread}{}", quota_text(quota, &policy), modes(rule))
        }
    }
}

#[allow(clippy::float_arithmetic)] // Shown to people.
fn shedding_text(Shedding { policy, priority_key, .. }: &Shedding) -> String {
    let percent = |part: f64| (part * 10_000.0).round() / 100.0;
    format!(
        "load shedding, target {}%, half_life {:?}, floor {}%, stale_after {:?}, priority_key {priority_key}",
        percent(policy.target),
        policy.half_life,
        percent(policy.floor),
        policy.stale_after,
    )
}

fn quota_text(quota: Quota, policy: &Policy) -> String {
    let name = policy.algorithm().name();
    match policy.lease_ttl() {
        Some(lease_ttl) => format!("{} at a time, {name}, lease_ttl {lease_ttl:?}", quota.limit),
        None if !policy.min_interval().is_zero() => {
            format!("{quota}, {name}, min_interval {:?}", policy.min_interval())
        }
        None => format!("{quota}, {name}"),
    }
}

fn overdraft_text(policy: &Policy) -> String {
    let is_window = policy.algorithm() == Algorithm::FixedWindow;
    let carry = if is_window && policy.has_bound() { ", carry" } else { "" };
    let max_debt = policy.max_debt().map(|debt| format!(", max_debt {debt}"));
    format!(", overdraft{carry}{}", max_debt.unwrap_or_default())
}

fn modes(rule: &Rule) -> &'static str {
    match (rule.shadow_mode, rule.quota_mode) {
        (false, false) => "",
        (true, false) => ", shadow mode",
        (false, true) => ", quota mode",
        (true, true) => ", shadow mode, quota mode",
    }
}
