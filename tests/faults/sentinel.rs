//! A master that sentinels look after.

use super::{
    harness::{Harness, Profile, Times, names},
    samples::millis,
    table::ReportRow,
    *,
};
use crate::support::sentinel::{MASTER, Options, Sentinel};

const OPTIONS: Options = Options {
    server: &[],
    sentinel: "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 6000",
    password: "",
    sentinel_password: "",
};

/// The replica takes over: because the master died, or by order.
fn fails_over(fault: &str, profile: &Profile, begin: impl FnOnce(&mut Sentinel)) -> ReportRow {
    let mut group = Sentinel::start(OPTIONS);
    let harness = Harness::start(&group.url(), profile, &names());
    harness.calm(profile, profile.before);
    let begun = harness.load.now();
    begin(&mut group);
    wait("the replica is not promoted", || group.is_master(1));
    let promoted = harness.load.now();
    wait("the replica gets no calls", || group.decisions(1) > 0);
    let times = Times { fault: begun, ..harness.healed(profile, promoted) };
    let samples = harness.end();
    let mut row = ReportRow::new(fault, profile);
    row.no_errors(&samples);
    row.normal_within(
        &samples,
        Times { fault: begun, healed: promoted },
        Duration::from_secs(5),
        "the promotion",
    );
    let during = samples.between(times.fault, times.healed);
    row.note(format!(
        "promoted after {}, {} of {} by policy until the new master was used",
        millis(promoted - times.fault),
        during.degraded(),
        during.len()
    ));
    row
}

pub(super) fn master_dies(profile: &Profile) -> ReportRow {
    fails_over("Sentinel: the master is killed, its replica promoted", profile, |group| group.kill(0))
}

pub(super) fn is_ordered(profile: &Profile) -> ReportRow {
    fails_over("Sentinel: SENTINEL FAILOVER", profile, |group| {
        let mut order = cmd("SENTINEL");
        order.arg("FAILOVER").arg(MASTER).exec(&mut group.sentinel()).expect("obeyed");
    })
}

#[test]
fn a_dying_master_causes_no_error_and_its_replica_is_used() {
    master_dies(&Profile::SHORT).judge();
}

#[test]
fn a_manual_failover_causes_no_error() {
    is_ordered(&Profile::SHORT).judge();
}
