//! `ban` of a limit: defaults, ranges, and limits that cannot have one.

use tollgate_core::ban::{BanMode, BanPolicy};

use super::{assert_says, clean, domain, errors, minutely as with, rule_of, warnings};

fn ban(limit: &str) -> BanPolicy {
    rule_of(&with("", limit)).ban.expect("has bans")
}

#[test]
fn an_empty_mapping_has_the_defaults_and_watches() {
    for empty in ["ban: {}", "ban: {mode: watch}"] {
        let ban = ban(empty);
        let numbers = [u32::from(ban.threshold), ban.interval.into(), ban.duration, ban.max_duration];
        assert_eq!(numbers, [180, 300, 600, 600]);
        assert_eq!((ban.mode, ban.grows()), (BanMode::Watch, false));
    }
    assert_eq!(ban("ban: {}").list_after, None);
    assert_eq!(rule_of(&with("", "ban:")).ban, None);
}

#[test]
fn every_key_is_read() {
    let ban = ban(
        "ban: {threshold: 10, interval: 10m, duration: 1m, max_duration: 1d, forgive: 2h, list_after: 3, mode: enforce}",
    );
    let numbers = [u32::from(ban.threshold), ban.interval.into(), ban.duration, ban.max_duration];
    assert_eq!(numbers, [10, 600, 60, 86_400]);
    assert_eq!((ban.forgive, ban.mode, ban.grows()), (7_200, BanMode::Enforce, true));
    assert_eq!(ban.list_after, Some(3));
}

#[test]
fn parameters_out_of_range_are_reported_at_their_key() {
    for (keys, message) in [
        ("threshold: 301", "a threshold from 1 to the seconds of the interval"),
        ("interval: 2h", "an interval of 1 second to 1 hour"),
        ("duration: 31d", "a duration of 1 second to 30 days"),
        ("max_duration: 5m", "a max_duration from the duration to 365 days"),
        ("max_duration: 1h, forgive: 0s", "1 second to 365 days to forgive a ban"),
        ("list_after: 0", "1 to 31 bans, with those that are shorter than max_duration"),
    ] {
        let key = keys.rsplit(", ").next().and_then(|last| last.split(':').next()).expect("a key");
        assert_eq!(
            errors(&with("", &format!("ban: {{{keys}}}"))),
            format!("a.yaml:5: descriptors[0].rate_limit.ban.{key}: is out of range; expected {message}")
        );
    }
    for (keys, message) in [
        (
            "interval: 10ms",
            "interval: `10ms` is not a duration; expected whole seconds, e.g. 30s, 5m, 1h, 2d, 1w or 1h30m",
        ),
        ("mode: enforced", "mode: `enforced` is not a mode of bans; did you mean `enforce`?"),
        ("thresold: 1", "thresold: unknown key; did you mean `threshold`?"),
    ] {
        assert_eq!(
            errors(&with("", &format!("ban: {{{keys}}}"))),
            format!("a.yaml:5: descriptors[0].rate_limit.ban.{message}")
        );
    }
    let all = errors(&with("", "ban: {interval: 1.5s, duration: never, mode: 1}"));
    assert_says(&all, &["ban.interval", "ban.duration", "ban.mode"]);
}

#[test]
fn a_limit_that_cannot_ban_is_rejected() {
    for (descriptor, limit, message) in [
        ("", "algorithm: sliding_window_log", "sliding_window_log has no bans; expected one of fixed_window"),
        ("quota_mode: true", "", "contradicts `quota_mode: true`"),
        ("", "overdraft: true", "contradicts `overdraft: true`"),
        ("value: a*\n    share_threshold: true", "", "bans all values that share the counter"),
    ] {
        let text = errors(&with(descriptor, format!("{limit}, ban: {{}}").trim_start_matches(", ")));
        assert_says(&text, &["rate_limit.ban: ", message]);
    }
    let concurrency = "  - {key: k, rate_limit: {algorithm: concurrency, requests_per_unit: 1, ban: {}}}\n";
    assert_says(&errors(&domain(concurrency)), &["rate_limit.ban: concurrency has no bans"]);
    let one = with("value: v", "ban: {list_after: 1}");
    assert_says(&errors(&one), &["a.yaml:5: ", "rate_limit.ban.list_after: lists all clients"]);
    let unlimited = "  - {key: k, rate_limit: {unlimited: true, ban: {}}}\n";
    assert_says(&errors(&domain(unlimited)), &["rate_limit.ban: contradicts `unlimited: true`"]);
}

#[test]
fn defaults_have_no_ban() {
    let text = format!("defaults: {{ban: {{}}}}\n{}", with("", "ban: {}"));
    assert_says(&errors(&text), &["defaults.ban: does not belong to `defaults`; it belongs to `rate_limit`"]);
}

#[test]
fn bans_of_many_clients_and_bans_without_effect_are_warned_of() {
    let address = with("", "ban: {mode: enforce}").replace("key: k", "key: remote_address");
    assert_says(&warnings(&address), &["rate_limit.ban.mode: bans all clients behind an address"]);
    clean(&address.replace("enforce", "watch"));
    clean(&with("", "ban: {mode: enforce}"));
    let one = with("value: v", "ban: {}");
    assert_says(&warnings(&one), &["rate_limit.ban: the limit has one counter for all requests"]);
    let shadow = with("shadow_mode: true", "ban: {mode: enforce}");
    assert_says(&warnings(&shadow), &["rate_limit.ban.mode: has no effect beside `shadow_mode: true`"]);
    clean(&with("", "ban: {forgive: 1h, list_after: 2}"));
    let forgiving = with("", "ban: {forgive: 1h}");
    assert_says(&warnings(&forgiving), &["rate_limit.ban.forgive: has no effect without a `max_duration`"]);
}
