//! Runs without faults against one ideal counter: what is lost, and what it costs. The figures stand in
//! docs/internals/share-loans.md.

use super::sim::{Asking, Plan, Report, Traffic, run};
use crate::terms::Kind;

const MINUTE: u64 = 60_000_000;

const ALL: [Traffic; 4] = [Traffic::Uniform, Traffic::Hot, Traffic::Shift, Traffic::Sun];

/// The limits of the study.
fn studied() -> Vec<(&'static str, Plan)> {
    let quiet = |kind, limit| Plan::quiet(kind, limit, Traffic::Uniform);
    let bucket = Kind::TokenBucket { window: 1, capacity: 100_000 };
    vec![
        ("fixed 6000/min", quiet(Kind::FixedWindow { window: 60 }, 6_000)),
        ("fixed 1000/s", quiet(Kind::FixedWindow { window: 1 }, 1_000)),
        ("sliding 6000/min", quiet(Kind::SlidingWindow { window: 60 }, 6_000)),
        ("log 6000/min", quiet(Kind::SlidingWindowLog { window: 60 }, 6_000)),
        ("bucket 1000/s", Plan { burst: 100, ..quiet(bucket, 1_000) }),
        ("concurrency 1000", quiet(Kind::Concurrency { lease_ttl: 30_000_000 }, 1_000)),
        ("fixed 10/min", quiet(Kind::FixedWindow { window: 60 }, 10)),
        ("fixed 600/min", quiet(Kind::FixedWindow { window: 60 }, 600)),
    ]
}

fn line(name: &str, plan: &Plan, report: &Report) -> String {
    format!(
        "{name:18} {:8} load {} {:7}: lost {:6.3} %, {:.4} asks a decision, over {}, {} decisions",
        format!("{:?}", plan.traffic),
        plan.load,
        format!("{:?}", plan.asking),
        report.lost() * 100.0,
        report.asks as f64 / report.decisions as f64,
        report.over,
        report.decisions,
    )
}

#[test]
#[ignore = "a measurement: cargo test --release -p tollgate-regions study -- --ignored --nocapture"]
fn study_of_limits_and_traffic() {
    for (name, plan) in studied() {
        for traffic in ALL {
            for asking in [Asking::Never, Asking::Policy] {
                let minutes = if traffic == Traffic::Sun { 24 } else { 7 };
                let plan =
                    Plan { traffic, asking, length: minutes * MINUTE, warm_up: MINUTE, ..plan.clone() };
                println!("{}", line(name, &plan, &run(&plan)));
            }
        }
    }
}

#[test]
fn loans_admit_nearly_what_one_counter_admits() {
    for (name, plan) in studied() {
        for traffic in [Traffic::Uniform, Traffic::Hot] {
            let plan = Plan { traffic, length: 2 * MINUTE + MINUTE / 2, warm_up: MINUTE, ..plan.clone() };
            let report = run(&plan);
            println!("{}", line(name, &plan, &report));
            assert_eq!((report.over, report.over_committed), (0, 0), "{name} {traffic:?}");
        }
    }
}
