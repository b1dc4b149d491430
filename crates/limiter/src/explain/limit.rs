//! Text form of a limit.

use tollgate_core::algorithm::{Algorithm, Policy, Reserve};
use tollgate_core::{SyncMode, ban::BanPolicy, quota::Quota};
use tollgate_rules::{Candidate, Domain, Limit, OnShareExhausted, Rollout, Rule, Scope, Shedding, Weights};

/// Maximum number of weights that are shown one by one.
const MAX_SHOWN_WEIGHTS: usize = 8;

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
                SyncMode::Auto => ", leased while hot",
            };
            let scope = match (rule.scope, rule.on_share_exhausted) {
                (Scope::Regional, _) => "",
                (Scope::Global, OnShareExhausted::Deny) => ", global",
                (Scope::Global, OnShareExhausted::Wait) => ", global, on_share_exhausted: wait",
                (Scope::Primary, _) => ", primary region",
            };
            let parts = [
                rule.overdraft.then(|| overdraft_text(&policy)),
                rule.ban.as_ref().map(ban_text),
                rule.weights.as_ref().map(|weights| format!(", weights ({})", weights_text(weights))),
                rule.notify.as_ref().map(|notify| format!(", notify at {notify}")),
                rule.retry_after_spread.map(|spread| format!(", retry_after_spread {}s", spread.as_secs())),
                Some(rollout_text(&rule.rollout)),
            ];
            let parts: String = parts.into_iter().flatten().collect();
            format!("{}{scope}{sync}{parts}{}", quota_text(quota, &policy), modes(rule))
        }
    }
}

/// A value as it is, or quoted where it might be taken for something else.
fn value_text(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) { value.to_owned() } else { format!("{value:?}") }
}

/// Text form of weights, such as `large 3, small 2, others 1`; of many values, only their number.
pub fn weights_text(weights: &Weights) -> String {
    let others = weights.others;
    match weights.values() {
        values if values > MAX_SHOWN_WEIGHTS => format!("{values} values, others {others}"),
        _ => {
            let own = weights
                .sorted()
                .into_iter()
                .map(|(value, weight)| format!("{} {weight}, ", value_text(value)));
            format!("{}others {others}", own.collect::<String>())
        }
    }
}

/// Text form of a candidate: quota, and algorithm with its parameters.
pub fn candidate_text(Candidate { quota, policy, overdraft, .. }: &Candidate) -> String {
    let overdraft = if *overdraft { overdraft_text(policy) } else { String::new() };
    format!("{}{overdraft}", quota_text(*quota, policy))
}

/// Gradual changes of a limit.
fn rollout_text(rollout: &Rollout) -> String {
    let enforced = rollout.enforced.map(|share| format!(", enforced for {share}% of keys"));
    let candidate = rollout.candidate.as_ref();
    let candidate = candidate.map(|candidate| format!(", candidate ({})", candidate_text(candidate)));
    [enforced, candidate].into_iter().flatten().collect()
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
        None if policy.unused_percent() > 0 => {
            format!("{quota}, {name}, carry of {}% of unused hits", policy.unused_percent())
        }
        None => {
            let burst = policy.burst().filter(|burst| *burst != quota.limit);
            let burst = burst.map(|burst| format!(", burst {burst}")).unwrap_or_default();
            let reserve = policy.reserve_terms().map(reserve_text).unwrap_or_default();
            format!("{quota}, {name}{burst}{reserve}")
        }
    }
}

/// Reservations, such as `, reserve ttl 600s, unsettled charge, add 500, cap 25%`.
fn reserve_text(reserve: Reserve) -> String {
    let add = if reserve.add > 0 { format!(", add {}", reserve.add) } else { String::new() };
    let cap = reserve.cap_percent().map(|percent| format!(", cap {percent}%"));
    let (ttl, unsettled) = (seconds_text(reserve.ttl.get()), reserve.unsettled.name());
    format!(", reserve ttl {ttl}, unsettled {unsettled}{add}{}", cap.unwrap_or_default())
}

fn overdraft_text(policy: &Policy) -> String {
    let is_window = policy.algorithm() == Algorithm::FixedWindow;
    let carry = if is_window && policy.max_debt().is_some() { ", carry" } else { "" };
    let max_debt = policy.max_debt().map(|debt| format!(", max_debt {debt}"));
    format!(", overdraft{carry}{}", max_debt.unwrap_or_default())
}

/// Bans, such as `ban 10m up to 1d after 180 bad seconds in 5m, forgiven after 1d (watch)`.
fn ban_text(ban: &BanPolicy) -> String {
    let growth = ban.grows().then(|| format!(" up to {}", seconds_text(ban.max_duration)));
    let forgiven =
        ban.remembers().then(|| format!(", one doubling less after {}", seconds_text(ban.forgive)));
    let listed = ban.list_after.map(|count| format!(", listed after {count} of the longest in a row"));
    format!(
        ", ban {}{} after {} bad seconds in {}{}{} ({})",
        seconds_text(ban.duration),
        growth.unwrap_or_default(),
        ban.threshold,
        seconds_text(ban.interval.into()),
        forgiven.unwrap_or_default(),
        listed.unwrap_or_default(),
        ban.mode.name()
    )
}

/// Seconds in the longest unit that divides them.
fn seconds_text(seconds: u32) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60)];
    let longest = units.into_iter().find(|(_, length)| seconds.is_multiple_of(*length));
    let (unit, length) = longest.unwrap_or(("s", 1));
    format!("{}{unit}", seconds.checked_div(length).unwrap_or_default())
}

fn modes(rule: &Rule) -> &'static str {
    match (rule.shadow_mode, rule.quota_mode) {
        (false, false) => "",
        (true, false) => ", shadow mode",
        (false, true) => ", quota mode",
        (true, true) => ", shadow mode, quota mode",
    }
}
