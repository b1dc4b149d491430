//! A master that sentinels look after.

use super::*;
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
    let mut promotion = Duration::ZERO;
    let Findings { mut row, samples, times } = Findings::of(fault, profile, &group.url(), &names(), || {
        let begun = Instant::now();
        begin(&mut group);
        wait("the replica is not promoted", || group.is_master(1));
        promotion = begun.elapsed();
        wait("the replica gets no calls", || group.decisions(1) > 0);
    });
    let promoted = Times { healed: times.fault + promotion, ..times };
    row.normal_within(&samples, promoted, Duration::from_secs(5), "the promotion");
    let during = samples.between(times.fault, times.healed);
    row.note(format!(
        "promoted after {}, {} of {} by policy until the new master was used",
        millis(promotion),
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
fn failovers_by_sentinels_cause_no_error_and_the_replica_is_used() {
    for scenario in [master_dies, is_ordered] {
        scenario(&Profile::SHORT).judge();
    }
}
