//! Faults of the network to Redis.

use std::{thread, time::Duration};

use super::{
    harness::{Harness, names},
    profile::Profile,
    report::ReportRow,
    samples::millis,
};
use crate::support::{
    proxy::{Direction, Proxy, Way},
    redis::Redis,
};

/// The fault of the network, for its duration.
fn disturb(fault: &str, profile: &Profile, disturb: impl FnOnce(&Proxy)) -> ReportRow {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let harness = Harness::start(&format!("redis://127.0.0.1:{}", proxy.port()), profile, &names());
    let times = harness.during(profile, || disturb(&proxy), || proxy.set_both(Way::Open));
    let samples = harness.end();
    let during = samples.between(times.fault, times.healed);
    let mut row = ReportRow::new(fault, profile);
    row.no_errors(&samples);
    let degraded = during.degraded();
    row.must("calls decided by policy meanwhile", format!("{degraded} of {}", during.len()), degraded > 0);
    row.timed("p99.9 <= 15 ms during", millis(during.p999()), during.p999() <= Duration::from_millis(15));
    row.normal_within(&samples, times, Duration::from_secs(1), "the fault");
    row
}

pub(super) fn is_black(profile: &Profile) -> ReportRow {
    disturb("the network to Redis drops everything", profile, |proxy| proxy.set_both(Way::Silent))
}

pub(super) fn is_slow(profile: &Profile) -> ReportRow {
    let delay = Way::Slow(2 * profile.timeout);
    disturb("the network to Redis delays by twice the store timeout", profile, |proxy| {
        proxy.set(Direction::ToClient, delay);
    })
}

/// New connections come up, and are cut in the middle of what the server says next.
pub(super) fn cuts_answers(profile: &Profile) -> ReportRow {
    disturb("connections to Redis are cut in the middle of replies", profile, |proxy| {
        proxy.set(Direction::ToClient, Way::CutAfter(7));
    })
}

/// The server's half is closed, again and again.
pub(super) fn is_half_closed(profile: &Profile) -> ReportRow {
    disturb("Redis closes its half of the connections every 20 ms", profile, |proxy| {
        for _ in 0..20 {
            proxy.half_close();
            thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn a_network_that_drops_everything_causes_no_error() {
    is_black(&Profile::SHORT).judge();
}

#[test]
fn a_slow_network_causes_no_error() {
    is_slow(&Profile::SHORT).judge();
}

#[test]
fn truncated_replies_cause_no_error() {
    cuts_answers(&Profile::SHORT).judge();
}

#[test]
fn half_closed_connections_cause_no_error() {
    is_half_closed(&Profile::SHORT).judge();
}
