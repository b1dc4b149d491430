//! A master that sentinels look after.

use std::time::Duration;

use super::{
    form::Form,
    row::Row,
    samples::millis,
    world::{Times, World, names},
};
use crate::support::{
    cluster::wait,
    sentinel::{MASTER, Options, Sentinel},
};

const OPTIONS: Options = Options {
    server: &[],
    sentinel: "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 6000",
    password: "",
    sentinel_password: "",
};

/// The replica takes over: because the master died, or by order.
fn fails_over(fault: &str, form: &Form, begin: impl FnOnce(&mut Sentinel)) -> Row {
    let mut group = Sentinel::start(OPTIONS);
    let world = World::start(&group.url(), form, &names());
    world.calm(form, form.before);
    let begun = world.load.now();
    begin(&mut group);
    wait("the replica is not promoted", || group.is_master(1));
    let promoted = world.load.now();
    wait("the replica is not asked", || group.decisions(1) > 0);
    let times = Times { fault: begun, ..world.healed(form, promoted) };
    let samples = world.end();
    let mut row = Row::new(fault, form);
    row.no_errors(&samples);
    row.normal_within(
        &samples,
        Times { fault: begun, healed: promoted },
        Duration::from_secs(5),
        "the promotion",
    );
    let during = samples.between(times.fault, times.healed);
    row.note(format!(
        "promoted after {}, {} of {} by policy until it was asked",
        millis(promoted - times.fault),
        during.degraded(),
        during.len()
    ));
    row
}

pub(super) fn master_dies(form: &Form) -> Row {
    fails_over("Sentinel: the master is killed, its replica promoted", form, |group| group.kill(0))
}

pub(super) fn is_ordered(form: &Form) -> Row {
    fails_over("Sentinel: SENTINEL FAILOVER", form, |group| {
        let mut order = redis::cmd("SENTINEL");
        order.arg("FAILOVER").arg(MASTER).exec(&mut group.sentinel()).expect("obeyed");
    })
}

#[test]
fn a_master_that_dies_costs_no_error_and_its_replica_is_used() {
    master_dies(&Form::SHORT).judge();
}

#[test]
fn a_failover_by_order_costs_no_error() {
    is_ordered(&Form::SHORT).judge();
}
