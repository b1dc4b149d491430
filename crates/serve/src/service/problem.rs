//! Body of a denial: problem details (RFC 9457).

use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate_core::algorithm::Policy;
use tollgate_core::quota::{Unit, Window};
use tollgate_limiter::decision::{Code, Degraded, Limited};

use super::{Parts, headers::unix_seconds};

/// Problem types of draft-ietf-httpapi-ratelimit-headers-10.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const ABNORMAL_USAGE: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Longest window that is stated in seconds.
const MAX_WINDOW_IN_SECONDS: u32 = 60;

/// The body of a denial.
pub(super) fn body(Parts { decision, clock, retry_after, .. }: &Parts<'_, '_, '_>) -> String {
    let retry_after = retry_after.unwrap_or(1);
    let retry = format!("retry in {}.", counted(retry_after, "second"));
    let mut body = json!({"title": "Too many requests", "status": 429, "retry_after": retry_after});
    let mut set = |key: &str, value: Value| {
        if let Some(fields) = body.as_object_mut() {
            fields.insert(key.to_owned(), value);
        }
    };
    if decision.listed.is_some() {
        // Denied by a list: no quota was exceeded, and the entry may have no end.
        set("type", "about:blank".into());
        set("detail", format!("Denied for now; {retry}").into());
    } else if decision.shed.is_some() {
        // The service has too little capacity for all requests.
        set("type", REDUCED_CAPACITY.into());
        set("detail", format!("The service is busy; {retry}").into());
    } else {
        let violated: Vec<&Limited<'_>> =
            decision.every_limit().filter(|limited| limited.code() == Code::OverLimit).collect();
        let is_unchecked = decision.degraded.is_some_and(Degraded::denies);
        let (kind, sentence) = match deciding(&violated) {
            _ if is_unchecked => (REDUCED_CAPACITY, "Rate limits cannot be checked at present".to_owned()),
            Some(limited) if limited.enforced_ban().is_some() => {
                (ABNORMAL_USAGE, format!("Banned for repeated requests over the {}", limit_text(limited)))
            }
            Some(limited) => (QUOTA_EXCEEDED, capitalized(&format!("{} exceeded", limit_text(limited)))),
            None => (QUOTA_EXCEEDED, "Rate limit exceeded".to_owned()),
        };
        set("type", kind.into());
        set("detail", format!("{sentence}; {retry}").into());
        set("reset_at", decision.retry_after().map(|wait| unix_seconds(clock.now(), wait)).into());
        set("violated-policies", violated.into_iter().map(policy).collect());
    }
    body.to_string()
}

/// The limit that the client waits for: the last one to admit it, or the first one if all are quotas.
fn deciding<'a, 'r>(violated: &[&'a Limited<'r>]) -> Option<&'a Limited<'r>> {
    let of = |is_quota: bool| violated.iter().copied().filter(move |limited| limited.is_quota == is_quota);
    let last = of(false).max_by_key(|limited| limited.until_reset());
    last.or_else(|| of(true).min_by_key(|limited| limited.until_reset()))
}

fn policy(limited: &Limited<'_>) -> Value {
    let (name, limit) = (limited.label(), limited.quota.limit);
    if limited.algorithm.holds_permits() {
        // A concurrency limit has no window.
        json!({"name": name, "limit": limit})
    } else {
        json!({"name": name, "limit": limit, "window": limited.quota.window.seconds_at(limited.verdict.decided_at)})
    }
}

/// The limit in words: "rate limit of 100 requests per 60 seconds".
fn limit_text(limited: &Limited<'_>) -> String {
    let (holds_permits, limit) = (limited.algorithm.holds_permits(), limited.quota.limit);
    let mut text = if holds_permits { "limit".to_owned() } else { "rate limit".to_owned() };
    // Writing to a string cannot fail.
    if !limited.name().is_empty() {
        let _ = write!(text, " \"{}\"", limited.name());
    }
    if holds_permits {
        let _ = write!(text, " of {}", counted(limit, "concurrent request"));
    } else {
        let (requests, window) = (counted(limit, "request"), window_text(limited.quota.window));
        let _ = write!(text, " of {requests} per {window}");
    }
    if let Some(policy) = limited.rule.and_then(|rule| rule.policy()) {
        text.push_str(&parameters(&policy, limit));
    }
    text
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

/// Parameters beside the quota that a client can exceed too.
fn parameters(policy: &Policy, limit: u64) -> String {
    match policy.burst() {
        Some(burst) if burst != limit => format!(" with a burst of {burst}"),
        _ if !policy.min_interval().is_zero() => format!(" with {:?} between them", policy.min_interval()),
        _ => String::new(),
    }
}

/// The window after "per": in seconds up to a minute, then in the longest unit up to a day that divides it.
fn window_text(window: Window) -> String {
    if window.calendar().is_some() {
        return window.unit().name().to_owned();
    }
    let seconds = window.seconds();
    let units = [Unit::Day, Unit::Hour, Unit::Minute];
    let longest = units.into_iter().find(|unit| seconds.is_multiple_of(unit.seconds()));
    let unit = longest.filter(|_| seconds > MAX_WINDOW_IN_SECONDS).unwrap_or(Unit::Second);
    match seconds / unit.seconds() {
        1 => unit.name().to_owned(),
        count => counted(count.into(), unit.name()),
    }
}

/// A number with its noun, which is singular for one.
fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_stated_in_seconds_up_to_a_minute_and_in_the_longest_unit_beyond() {
        for (seconds, text) in [
            (1, "second"),
            (30, "30 seconds"),
            (60, "60 seconds"),
            (90, "90 seconds"),
            (120, "2 minutes"),
            (900, "15 minutes"),
            (3_600, "hour"),
            (5_400, "90 minutes"),
            (86_400, "day"),
            (604_800, "7 days"),
            (2_592_000, "30 days"),
        ] {
            assert_eq!(window_text(Window::from_seconds(seconds).expect("in range")), text);
        }
    }
}
