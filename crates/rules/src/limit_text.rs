//! Text form of a limit: its quota, and its options by the keys of the configuration.
//!
//! Instances compare these texts to add up what they report of a rule.

use tollgate_core::algorithm::{Algorithm, Policy, Reserve};
use tollgate_core::{SyncMode, ban::BanPolicy, quota::Quota};

use crate::{Candidate, Domain, Limit, OnShareExhausted, Rule, Scope, Shedding, Weights};

/// Maximum number of weights that are shown one by one.
const MAX_SHOWN_WEIGHTS: usize = 8;

/// Key of the configuration, and its value.
pub type StatedOption = (&'static str, String);

/// Text form of a rule's limit: quota, algorithm, options, and modes.
pub fn limit_text(domain: &Domain, rule: &Rule) -> String {
    let limit = match (&rule.shedding, &rule.limit) {
        (Some(shedding), _) => shedding_text(shedding),
        (None, Limit::Unlimited) => return "unlimited".to_owned(),
        (None, Limit::Quota { quota, policy }) => quota_text(*quota, policy, limit_options(domain, rule)),
    };
    let modes = [(rule.shadow_mode, ", shadow mode"), (rule.quota_mode, ", quota mode")];
    modes.into_iter().filter(|(is_on, _)| *is_on).fold(limit, |text, (_, mode)| text + mode)
}

/// Text form of a candidate: quota, and algorithm with its parameters.
pub fn candidate_text(Candidate { quota, policy, overdraft, .. }: &Candidate) -> String {
    quota_text(*quota, policy, parameters(*quota, policy, *overdraft))
}

/// Text form of a rule that sheds.
#[allow(clippy::float_arithmetic)] // Shown to people.
pub fn shedding_text(Shedding { policy, priority_key, .. }: &Shedding) -> String {
    let percent = |part: f64| (part * 10_000.0).round() / 100.0;
    format!(
        "load shedding, target {}%, half_life {:?}, floor {}%, stale_after {:?}, priority_key {priority_key}",
        percent(policy.target),
        policy.half_life,
        percent(policy.floor),
        policy.stale_after,
    )
}

fn quota_text(quota: Quota, policy: &Policy, options: Vec<StatedOption>) -> String {
    let algorithm = policy.algorithm();
    let amount =
        if algorithm.holds_permits() { format!("{} at a time", quota.limit) } else { quota.to_string() };
    let options = options.into_iter().map(|(key, value)| match &*value {
        "true" => format!(", {key}"),
        value => format!(", {key} {value}"),
    });
    format!("{amount}, {}{}", algorithm.name(), options.collect::<String>())
}

/// The options of a rule's limit that are not the default, besides algorithm, window and modes; none of an unlimited rule.
pub fn limit_options(domain: &Domain, rule: &Rule) -> Vec<StatedOption> {
    let Limit::Quota { quota, policy } = &rule.limit else { return Vec::new() };
    let sync = other_than(SyncMode::default(), domain.sync_of(rule));
    let scope = other_than(Scope::default(), rule.scope);
    let on_share_exhausted = other_than(OnShareExhausted::default(), rule.on_share_exhausted);
    let candidate = rule.rollout.candidate.as_ref();
    let options = [
        ("ban", rule.ban.as_ref().map(ban_text)),
        ("weight", rule.weights.as_ref().map(|weights| weights_text(weights))),
        ("notify", rule.notify.as_ref().map(|notify| format!("[{notify}]"))),
        ("sync", sync.map(|sync| sync.name().to_owned())),
        ("scope", scope.map(|scope| scope.name().to_owned())),
        ("on_share_exhausted", on_share_exhausted.map(|decision| decision.name().to_owned())),
        ("on_store_error", rule.on_store_error.map(|policy| policy.name().to_owned())),
        ("degraded_limit", rule.degraded_limit.map(|limit| limit.to_string())),
        ("retry_after_spread", rule.retry_after_spread.map(|spread| format!("{}s", spread.as_secs()))),
        ("enforce_percent", rule.rollout.enforced.map(|share| share.to_string())),
        ("candidate", candidate.map(|candidate| format!("{{{}}}", candidate_text(candidate)))),
    ];
    parameters(*quota, policy, rule.overdraft).into_iter().chain(stated(options)).collect()
}

/// The parameters of a policy: its algorithm's, and what is charged after the response.
fn parameters(quota: Quota, policy: &Policy, overdraft: bool) -> Vec<StatedOption> {
    let burst = policy.burst().filter(|burst| *burst != quota.limit);
    let min_interval = Some(policy.min_interval()).filter(|interval| !interval.is_zero());
    let (max_debt, unused) = (policy.max_debt(), policy.unused_percent());
    let has_debt = policy.algorithm() == Algorithm::FixedWindow && max_debt.is_some();
    let carry = match unused {
        0 => (overdraft && has_debt).then(|| "true".to_owned()),
        _ => Some(format!("{{debt: {has_debt}, unused: {unused}%}}")),
    };
    let parameters = [
        ("burst", burst.map(|burst| burst.to_string())),
        ("lease_ttl", policy.lease_ttl().map(|ttl| format!("{ttl:?}"))),
        ("min_interval", min_interval.map(|interval| format!("{interval:?}"))),
        ("reserve", policy.reserve_terms().map(reserve_text)),
        ("overdraft", overdraft.then(|| "true".to_owned())),
        ("carry", carry),
        ("max_debt", max_debt.filter(|_| overdraft).map(|debt| debt.to_string())),
    ];
    stated(parameters).collect()
}

fn stated<const N: usize>(
    options: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = StatedOption> {
    options.into_iter().filter_map(|(key, value)| Some((key, value?)))
}

fn other_than<T: Copy + PartialEq>(default: T, value: T) -> Option<T> {
    (value != default).then_some(value)
}

/// Reservations, such as `{ttl: 600s, unsettled: charge, add: 500, cap: 25%}`.
fn reserve_text(reserve: Reserve) -> String {
    let Reserve { ttl, unsettled, add, .. } = reserve;
    let cap = reserve.cap_percent().map(|percent| format!(", cap: {percent}%")).unwrap_or_default();
    format!("{{ttl: {ttl}s, unsettled: {}, add: {add}{cap}}}", unsettled.name())
}

/// Bans, such as `{threshold: 180, interval: 300s, duration: 600s, mode: watch}`.
fn ban_text(ban: &BanPolicy) -> String {
    let growth = ban.grows().then(|| format!(", max_duration: {}s", ban.max_duration));
    let forgive = ban.remembers().then(|| format!(", forgive: {}s", ban.forgive));
    let list_after = ban.list_after.map(|count| format!(", list_after: {count}"));
    let more: String = [growth, forgive, list_after].into_iter().flatten().collect();
    let (threshold, interval, duration) = (ban.threshold, ban.interval, ban.duration);
    let mode = ban.mode.name();
    format!("{{threshold: {threshold}, interval: {interval}s, duration: {duration}s{more}, mode: {mode}}}")
}

/// Weights, such as `{large 3, small 2, others 1}`; of many values, only their number.
fn weights_text(weights: &Weights) -> String {
    let values = match weights.values() {
        values if values > MAX_SHOWN_WEIGHTS => format!("{values} values, "),
        _ => {
            let own = weights.sorted().into_iter();
            own.map(|(value, weight)| format!("{} {weight}, ", value_text(value))).collect()
        }
    };
    format!("{{{values}others {}}}", weights.others)
}

/// A value as it is, or quoted where it might be taken for something else.
fn value_text(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) { value.to_owned() } else { format!("{value:?}") }
}

#[cfg(test)]
mod tests {
    use crate::config::{Options, load_files};

    use super::*;

    #[test]
    fn a_limit_is_written_by_the_keys_of_the_configuration() {
        let budget = "unit: day, requests_per_unit: 1000, overdraft: true";
        for (limit, keys, expected) in [
            ("unit: minute, requests_per_unit: 5", "", "5 per minute, fixed_window"),
            (
                "unit: minute, requests_per_unit: 5",
                "shadow_mode: true",
                "5 per minute, fixed_window, shadow mode",
            ),
            ("unlimited: true", "", "unlimited"),
            (
                "algorithm: token_bucket, unit: minute, requests_per_unit: 5, burst: 9",
                "",
                "5 per minute, token_bucket, burst 9",
            ),
            (
                "algorithm: concurrency, requests_per_unit: 5, lease_ttl: 60s",
                "",
                "5 at a time, concurrency, lease_ttl 60s",
            ),
            (
                "unit: minute, requests_per_unit: 5, ban: {threshold: 9, interval: 2m, duration: 5m, mode: watch}",
                "",
                "5 per minute, fixed_window, ban {threshold: 9, interval: 120s, duration: 300s, mode: watch}",
            ),
            (
                "unit: day, requests_per_unit: 1000, reserve: {ttl: 10m, add: 500, cap: 25%}",
                "",
                "1000 per day, fixed_window, reserve {ttl: 600s, unsettled: charge, add: 500, cap: 25%}",
            ),
            (
                &format!("{budget}, carry: true, notify: [50%]"),
                "",
                "1000 per day, fixed_window, overdraft, carry, max_debt 1000, notify [50%]",
            ),
            (
                "unit: minute, requests_per_unit: 5, sync: auto, on_store_error: deny, retry_after_spread: 3s",
                "",
                "5 per minute, fixed_window, sync auto, on_store_error deny, retry_after_spread 3s",
            ),
        ] {
            let file = format!("domain: d\ndescriptors:\n- {{key: k, rate_limit: {{{limit}}}, {keys}}}\n");
            let loaded = load_files([("a.yaml".to_owned(), file.into_bytes())], Options::default());
            let rules = loaded.unwrap_or_else(|error| panic!("{limit}: {error}")).rules;
            let domain = rules.domain("d").expect("stated");
            let rule = domain.root.rules().next().expect("stated");
            assert_eq!(limit_text(domain, rule), expected);
        }
    }
}
