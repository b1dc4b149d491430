//! Runs without faults against one ideal counter: what is lost, and what it costs. The figures stand in
//! docs/internals/share-loans.md.

use super::sim::{Borrowing, Plan, Report, Traffic, run};
use crate::terms::LimitKind;

const MINUTE: u64 = 60_000_000;

const ALL: [Traffic; 4] = [Traffic::Uniform, Traffic::Hot, Traffic::Shift, Traffic::Sun];

/// The limits of the study.
fn studied() -> Vec<(&'static str, Plan)> {
    let quiet = |kind, limit| Plan::quiet(kind, limit, Traffic::Uniform);
    let bucket = LimitKind::TokenBucket { window: 1, capacity: 100_000 };
    vec![
        ("fixed 6000/min", quiet(LimitKind::FixedWindow { window: 60 }, 6_000)),
        ("fixed 1000/s", quiet(LimitKind::FixedWindow { window: 1 }, 1_000)),
        ("sliding 6000/min", quiet(LimitKind::SlidingWindow { window: 60 }, 6_000)),
        ("log 6000/min", quiet(LimitKind::SlidingWindowLog { window: 60 }, 6_000)),
        ("bucket 1000/s", Plan { burst: 100, ..quiet(bucket, 1_000) }),
        ("fixed 100/s", quiet(LimitKind::FixedWindow { window: 1 }, 100)),
        (
            "bucket 100/s",
            Plan { burst: 100, ..quiet(LimitKind::TokenBucket { window: 1, capacity: 1_000_000 }, 100) },
        ),
        ("concurrency 1000", quiet(LimitKind::Concurrency { lease_ttl: 30_000_000 }, 1_000)),
        ("fixed 10/min", quiet(LimitKind::FixedWindow { window: 60 }, 10)),
        ("fixed 600/min", quiet(LimitKind::FixedWindow { window: 60 }, 600)),
    ]
}

fn line(name: &str, plan: &Plan, report: &Report) -> String {
    format!(
        "{name:18} {:8} load {} {:7}: lost {:6.3} %, {:.4} loan requests a decision, over {}, {} decisions",
        format!("{:?}", plan.traffic),
        plan.load,
        format!("{:?}", plan.borrowing),
        report.lost() * 100.0,
        report.loan_requests as f64 / report.decisions as f64,
        report.over,
        report.decisions,
    )
}

#[test]
#[ignore = "a measurement: cargo test --release -p tollgate-loans study -- --ignored --nocapture"]
fn study_of_limits_and_traffic() {
    for (name, plan) in studied() {
        for traffic in ALL {
            for borrowing in [Borrowing::Never, Borrowing::Policy] {
                let minutes = if traffic == Traffic::Sun { 24 } else { 7 };
                let plan =
                    Plan { traffic, borrowing, length: minutes * MINUTE, warm_up: MINUTE, ..plan.clone() };
                println!("{}", line(name, &plan, &run(&plan)));
            }
        }
    }
}

#[test]
fn loans_admit_nearly_what_one_counter_admits() {
    // Small limits lose more, unless requests wait.
    for (name, plan) in studied().into_iter().filter(|(_, plan)| plan.limit > 100) {
        for traffic in [Traffic::Uniform, Traffic::Hot] {
            let plan = Plan { traffic, length: 80_000_000, warm_up: 20_000_000, ..plan.clone() };
            let report = run(&plan);
            println!("{}", line(name, &plan, &report));
            assert_eq!((report.over, report.over_committed), (0, 0), "{name} {traffic:?}");
            assert!(report.lost() < 0.03, "{name} {traffic:?}: {:.3} % lost", report.lost() * 100.0);
            assert!(
                report.loan_requests * 10 < report.decisions,
                "{name} {traffic:?}: {} loan requests",
                report.loan_requests
            );
        }
    }
}

#[test]
#[ignore = "a measurement: cargo test --release -p tollgate-loans study -- --ignored --nocapture"]
fn study_of_small_limits() {
    for limit in [3, 10, 30] {
        for traffic in [Traffic::Hot, Traffic::Uniform, Traffic::Shift] {
            for (borrowing, waits) in
                [(Borrowing::Never, false), (Borrowing::Policy, false), (Borrowing::Policy, true)]
            {
                let plan = Plan::quiet(LimitKind::FixedWindow { window: 60 }, limit, traffic);
                let plan = Plan { borrowing, waits, length: 3_000 * MINUTE, ..plan };
                let report = run(&plan);
                let waits = report.waited as f64 / report.decisions as f64 * 100.0;
                let mean = report.wait as f64 / report.decisions as f64 / 1e3;
                let name = format!("fixed {limit}/min");
                let longest = report.longest_wait / 1_000;
                let line = line(&name, &plan, &report);
                println!("{line}, {waits:.1} % wait, mean {mean:.1} ms of all, longest {longest} ms");
            }
        }
    }
}

#[test]
#[ignore = "a measurement: cargo test --release -p tollgate-loans study -- --ignored --nocapture"]
fn study_of_five_regions_and_of_overload() {
    for (name, plan) in studied() {
        for (traffic, load, regions) in [
            (Traffic::Hot, 0.9, 5),
            (Traffic::Shift, 0.9, 5),
            (Traffic::Uniform, 1.5, 3),
            (Traffic::Hot, 1.5, 3),
            (Traffic::Shift, 1.5, 3),
        ] {
            let round_trips = [60_000, 80_000, 140_000, 200_000, 250_000][..regions].to_vec();
            let (weights, offsets) = (vec![1; regions], vec![0; regions]);
            let plan = Plan {
                traffic,
                load,
                weights,
                offsets,
                round_trips,
                length: 7 * MINUTE,
                warm_up: MINUTE,
                ..plan.clone()
            };
            println!("{regions} regions {}", line(name, &plan, &run(&plan)));
        }
    }
}

#[test]
fn a_small_limit_loses_little_when_requests_wait() {
    let plan = Plan::quiet(LimitKind::FixedWindow { window: 60 }, 10, Traffic::Hot);
    let report = run(&Plan { waits: true, length: 300 * MINUTE, ..plan });
    assert_eq!((report.over, report.over_committed), (0, 0));
    assert!(report.lost() < 0.01, "{:.3} % lost", report.lost() * 100.0);
    assert!(report.longest_wait < 500_000, "{} us", report.longest_wait);
}
