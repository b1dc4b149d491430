//! Faults of the way to Redis.

use std::{thread, time::Duration};

use super::{
    form::Form,
    row::Row,
    samples::millis,
    world::{World, names},
};
use crate::support::{
    proxy::{Direction, Proxy, Way},
    redis::Redis,
};

/// What is done to the way, for the time of the fault.
fn disturb(fault: &str, form: &Form, disturb: impl FnOnce(&Proxy)) -> Row {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let world = World::start(&format!("redis://127.0.0.1:{}", proxy.port()), form, &names());
    let times = world.during(form, || disturb(&proxy), || proxy.set_both(Way::Open));
    let samples = world.end();
    let during = samples.between(times.fault, times.healed);
    let mut row = Row::new(fault, form);
    row.no_errors(&samples);
    let degraded = during.degraded();
    row.must("answered by policy meanwhile", format!("{degraded} of {}", during.len()), degraded > 0);
    row.timed("p99.9 <= 15 ms during", millis(during.p999()), during.p999() <= Duration::from_millis(15));
    row.normal_within(&samples, times, Duration::from_secs(1), "it");
    row
}

pub(super) fn is_black(form: &Form) -> Row {
    disturb("the way to Redis passes nothing", form, |proxy| proxy.set_both(Way::Silent))
}

pub(super) fn is_slow(form: &Form) -> Row {
    let delay = Way::Slow(2 * form.patience);
    disturb("the way to Redis takes twice the store's time-out", form, |proxy| {
        proxy.set(Direction::ToClient, delay);
    })
}

/// New connections come up, and are cut in the middle of what the server says next.
pub(super) fn cuts_answers(form: &Form) -> Row {
    disturb("the way to Redis is cut in the middle of answers", form, |proxy| {
        proxy.set(Direction::ToClient, Way::CutAfter(7));
    })
}

/// The server's half is closed, again and again.
pub(super) fn is_half_closed(form: &Form) -> Row {
    disturb("Redis' half of the connections is closed, every 20 ms", form, |proxy| {
        for _ in 0..20 {
            proxy.half_close();
            thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn a_way_that_passes_nothing_costs_no_error() {
    is_black(&Form::SHORT).judge();
}

#[test]
fn a_slow_way_costs_no_error() {
    is_slow(&Form::SHORT).judge();
}

#[test]
fn answers_that_are_cut_cost_no_error() {
    cuts_answers(&Form::SHORT).judge();
}

#[test]
fn connections_that_are_half_closed_cost_no_error() {
    is_half_closed(&Form::SHORT).judge();
}
