//! Runs outside the assumptions of the protocol: what is over stays within its stated bound.

use super::sim::{Mishap, Plan, Traffic, run};
use crate::terms::LimitKind;

const SECOND: u64 = 1_000_000;

/// A busy limit in which much is lent.
fn busy(kind: LimitKind, seed: u64) -> Plan {
    Plan { seed, load: 1.5, length: 60 * SECOND, warm_up: 0, ..Plan::quiet(kind, 300, Traffic::Shift) }
}

fn kinds() -> [LimitKind; 4] {
    [
        LimitKind::FixedWindow { window: 1 },
        LimitKind::SlidingWindow { window: 10 },
        LimitKind::SlidingWindowLog { window: 2 },
        LimitKind::Concurrency { lease_ttl: 10 * SECOND },
    ]
}

#[test]
fn a_failover_that_loses_writes_admits_no_more_than_those() {
    let mut most = 0;
    for seed in 0..6 {
        for kind in kinds() {
            let mut plan = busy(kind, seed);
            for (region, at) in [(0, 20), (1, 35)] {
                plan.events.push((at * SECOND, Mishap::Failover { region, lost: SECOND }));
            }
            let report = run(&plan);
            most = most.max(report.over);
            assert!(report.over <= report.allowed, "{kind:?} {seed}: {} of {}", report.over, report.allowed);
        }
    }
    println!("at most {most} of 300 over after losing a second of writes");
    assert!(most > 0, "no run lost a write that counted");
}

#[test]
fn a_clock_that_steps_back_admits_at_most_a_loan_more() {
    for seed in 0..6 {
        for kind in kinds() {
            let mut plan = busy(kind, seed);
            plan.events.push((20 * SECOND, Mishap::Step { region: seed as usize % 3, by: -3_000_000 }));
            let report = run(&plan);
            assert!(report.over <= report.allowed, "{kind:?} {seed}: {} of {}", report.over, report.allowed);
        }
    }
}

#[test]
fn clocks_that_differ_admit_no_more_by_label() {
    let mut most = 0;
    for seed in 0..6 {
        let offsets = vec![-50_000, 0, 50_000];
        let report = run(&Plan { offsets, ..busy(LimitKind::FixedWindow { window: 1 }, seed) });
        assert_eq!(report.over, 0);
        most = most.max(report.true_over);
    }
    // By true time, what passes in the difference: 300 hits a second at 1.5 times the rate, in a tenth of one.
    println!("at most {most} of 300 over by true time, with clocks 100 ms apart");
    assert!(most <= 90, "{most} hits over by true time");
}

#[test]
fn a_region_cut_off_keeps_its_share_and_takes_part_again() {
    for kind in kinds() {
        let cut = Mishap::CutOff { region: 2, until: 420 * SECOND };
        let plan = Plan {
            events: vec![(120 * SECOND, cut)],
            length: 540 * SECOND,
            warm_up: 60 * SECOND,
            ..Plan::quiet(kind, 300, Traffic::Hot)
        };
        let report = run(&plan);
        assert_eq!((report.over, report.over_committed), (0, 0), "{kind:?}");
        let part = |minute: usize| report.minutes[minute][1] as f64 / report.minutes[minute][2] as f64;
        println!("{kind:?}: {:.3} before, {:.3} cut off, {:.3} after", part(1), part(4), part(8));
        assert!(part(1) > 0.95 && part(8) > 0.95, "{kind:?}: {:?}", report.minutes);
    }
}

#[test]
fn a_lost_region_returns_its_loans_and_its_share_when_dropped_and_joins_again() {
    for kind in kinds() {
        let plan = Plan {
            events: vec![
                (120 * SECOND, Mishap::Lost { region: 0 }),
                (300 * SECOND, Mishap::Dropped { region: 0 }),
                (480 * SECOND, Mishap::Back { region: 0 }),
            ],
            length: 660 * SECOND,
            warm_up: 60 * SECOND,
            ..Plan::quiet(kind, 300, Traffic::Hot)
        };
        let report = run(&plan);
        assert_eq!(report.over, 0, "{kind:?}");
        let part = |minute: usize| report.minutes[minute][1] as f64 / report.minutes[minute][2] as f64;
        println!(
            "{kind:?}: {:.3}, lost {:.3}, dropped {:.3}, back {:.3}",
            part(1),
            part(4),
            part(7),
            part(10)
        );
        // Two thirds of the limit of a load of 0.9 of it, all of it, and all of it.
        assert!((0.6..0.8).contains(&part(4)), "{kind:?}: {:?}", report.minutes);
        assert!(part(7) > 0.95 && part(10) > 0.95, "{kind:?}: {:?}", report.minutes);
    }
}
