//! Headers that Envoy adds to the HTTP response, and the times in them.

use std::time::Duration;

use tollgate_core::descriptor::{Descriptor, Entry};
use tollgate_core::{Fnv, RecordId, clock::Timestamp};
use tollgate_limiter::decision::{Decision, Limited};
use tollgate_rules::Rule;

use super::{HeaderStyle, Parts, ResponseOptions};

/// Mark of a response decided without the store.
const DEGRADED_HEADER: (&str, &str) = ("x-ratelimit-policy", "degraded");

/// Mark of a denial because of a service's utilization.
const SHED_HEADER: (&str, &str) = ("x-ratelimit-policy", "shed");

/// Mark of a response to a banned client.
const BANNED_HEADER: (&str, &str) = ("x-ratelimit-policy", "banned");

/// Names of limit, remaining hits and reset, as envoyproxy/ratelimit has them.
const RATELIMIT: [&str; 3] = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];

/// The most widespread names.
const X_RATELIMIT: [&str; 3] = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];

/// Adds the headers of the configured style, `Retry-After` on a denial unless it is off, and the marks of a degraded response, of a
/// ban, and of a request that was shed. `push` adds one header.
pub(super) fn add(
    push: &mut impl FnMut(&str, &str),
    options: &ResponseOptions,
    Parts { decision, ban, clock, retry_after, .. }: &Parts<'_, '_, '_>,
) {
    if options.headers != HeaderStyle::Off
        && let Some((_, governing)) = decision.governing()
    {
        let reset = match options.headers {
            HeaderStyle::Off => None,
            HeaderStyle::Ratelimit => Some(add_triple(push, options, governing, RATELIMIT)),
            HeaderStyle::XRatelimit => Some(add_triple(push, options, governing, X_RATELIMIT)),
            HeaderStyle::Ietf => {
                add_ietf(push, decision, governing);
                None
            }
        };
        let reset_at = options.header_names.reset_at.as_deref();
        if let Some(name) = reset.filter(|name| Some(*name) != reset_at) {
            push_number(push, name, whole_seconds(governing.until_reset()));
        }
        if let Some(name) = reset_at {
            push_number(push, name, unix_seconds(clock.now(), governing.until_reset()));
        }
    }
    if let Some(seconds) = retry_after.filter(|_| options.retry_after_header) {
        push_number(push, "Retry-After", seconds);
    }
    let is_banned = ban.is_some_and(|ban| ban.is_enforced);
    for (is_marked, (name, value)) in [
        (decision.degraded.is_some(), DEGRADED_HEADER),
        (is_banned, BANNED_HEADER),
        (decision.shed.is_some(), SHED_HEADER),
    ] {
        if is_marked {
            push(name, value);
        }
    }
}

fn push_number(push: &mut impl FnMut(&str, &str), name: &str, number: u64) {
    push(name, itoa::Buffer::new().format(number));
}

/// Adds limit and remaining hits, and returns the name of the reset.
fn add_triple<'a>(
    push: &mut impl FnMut(&str, &str),
    options: &'a ResponseOptions,
    governing: &Limited<'_>,
    [limit, remaining, reset]: [&'a str; 3],
) -> &'a str {
    let names = &options.header_names;
    push_number(push, names.limit.as_deref().unwrap_or(limit), governing.quota.limit);
    push_number(push, names.remaining.as_deref().unwrap_or(remaining), governing.verdict.remaining);
    names.reset.as_deref().unwrap_or(reset)
}

/// Adds `RateLimit-Policy` with every limit of the request, and `RateLimit` with the state of the governing one.
fn add_ietf(push: &mut impl FnMut(&str, &str), decision: &Decision<'_>, governing: &Limited<'_>) {
    let policy = |limited: &Limited<'_>| {
        let (name, quota) = (policy_name(limited), limited.quota);
        if limited.algorithm.holds_permits() {
            format!("{name};q={};qu=\"concurrent-requests\"", quota.limit)
        } else {
            format!("{name};q={};w={}", quota.limit, quota.window.seconds_at(limited.verdict.decided_at))
        }
    };
    let mut policies: Vec<String> = Vec::new();
    for limited in decision.every_limit() {
        let policy = policy(limited);
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    push("RateLimit-Policy", &policies.join(", "));
    let (remaining, until) = (governing.verdict.remaining, whole_seconds(governing.until_reset()));
    push("RateLimit", &format!("{};r={remaining};t={until}", policy_name(governing)));
}

/// Label of the limit as a structured-field string (RFC 9651).
fn policy_name(limited: &Limited<'_>) -> String {
    let mut quoted = String::from("\"");
    for character in limited.label().chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

/// Time until a denied request with these descriptors may be retried, with each limit's delay, which is at most its spread.
/// The end of a list entry has none.
///
/// All clients of a fixed window may be admitted in the same second. A delay that depends on the counter's key alone makes
/// them return one after another, and is the same on every instance and for every denial of the key.
pub(super) fn retry_after(
    decision: &Decision<'_>,
    domain: &str,
    descriptors: &[Descriptor<'_>],
) -> Option<Duration> {
    decision.retry_after_by(|at, limited| {
        limited.until_reset().saturating_add(delay(domain, descriptors, at, limited))
    })
}

/// Delay of the clients that the limit of the descriptor at `at` denies: whole seconds from zero to the maximum.
///
/// A concurrency limit has none: its permits are released at any moment, so its clients do not wait for the same one.
/// Neither has a ban, whose end is that of one client, nor a limit override, for which no rule states one.
pub(super) fn delay(
    domain: &str,
    descriptors: &[Descriptor<'_>],
    at: usize,
    limited: &Limited<'_>,
) -> Duration {
    let Some(rule) = limited.rule else { return Duration::ZERO };
    let max = rule.retry_after_spread.unwrap_or_default();
    if max.as_secs() == 0 || limited.algorithm.holds_permits() || limited.enforced_ban().is_some() {
        return Duration::ZERO;
    }
    let choices = max.as_secs().saturating_add(1);
    Duration::from_secs(key_hash(domain, descriptors, at, rule).checked_rem(choices).unwrap_or_default())
}

/// Hash of the counter's key, on which instances of two versions must agree. All values of the request stand for a
/// counter that its clients share, because their delays would be equal otherwise.
fn key_hash(domain: &str, descriptors: &[Descriptor<'_>], at: usize, rule: &Rule) -> u64 {
    let mut hash = Fnv::default();
    hash.text(domain);
    let entries = descriptors.get(at).map_or(&[][..], |descriptor| &descriptor.entries);
    hash.bytes(&(RecordId::LENGTH as u64).to_le_bytes());
    hash.bytes(&rule.record_id().path());
    let mut open = rule.open(entries).map(|(_, entry)| entry).peekable();
    match open.peek() {
        Some(_) => write_entries(&mut hash, open),
        None => write_entries(&mut hash, descriptors.iter().flat_map(|each| each.entries.iter().copied())),
    }
    hash.finish()
}

fn write_entries<'a>(hash: &mut Fnv, entries: impl Iterator<Item = Entry<'a>>) {
    for entry in entries {
        hash.text(entry.key);
        hash.text(entry.value);
    }
}

/// Time by which a point in time may be rounded down to a whole second. It covers the time from the store's decision to the
/// response, and the difference of the clocks, so that all responses in a window report the same Unix time.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(50);

/// Unix time in seconds at `wait` after a time, rounded up.
pub(super) fn unix_seconds(now: Timestamp, wait: Duration) -> u64 {
    let then = Duration::from_micros(now.as_micros()).saturating_add(wait);
    whole_seconds(then.saturating_sub(CLOCK_TOLERANCE))
}

/// Returns `duration` in seconds, rounded up.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_time_is_rounded_up_but_for_the_tolerance_of_the_clocks() {
        let of = |now, micros| unix_seconds(Timestamp::from_micros(now), Duration::from_micros(micros));
        assert_eq!(of(1_700_000_000_250_000, 9_750_000), 1_700_000_010);
        // Times of one window's end, seen up to 50 ms after the decision.
        assert_eq!(of(1_700_000_000_300_000, 9_750_000), 1_700_000_010);
        assert_eq!(of(1_700_000_000_250_000, 9_749_000), 1_700_000_010);
        assert_eq!(of(1_700_000_000_300_001, 9_750_000), 1_700_000_011);
        assert_eq!(of(1_700_000_000_250_000, 10_450_000), 1_700_000_011);
        assert_eq!(of(0, 0), 0);
    }
}
