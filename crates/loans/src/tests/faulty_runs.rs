//! Random faulty runs: nothing is over, and each deliberate fault is found.

use std::ops::Range;

use super::sim::{Plan, run};
use crate::fault::{Fault, inject};

/// First run whose admissions or effective limits exceed the limit, of a number of seeds.
fn first_excess(mut seeds: Range<u64>, decisions: u64) -> Option<u64> {
    seeds.find(|seed| {
        let report = run(&Plan::faulty(*seed, decisions));
        report.over > 0 || report.over_committed > 0
    })
}

#[test]
fn no_faulty_run_admits_more_than_the_limit() {
    for seed in 0..250 {
        let plan = Plan::faulty(seed, 1_200);
        let report = run(&plan);
        assert!(
            report.over == 0 && report.over_committed == 0,
            "seed {seed}: {} hits over, limits {} over: {plan:#?}",
            report.over,
            report.over_committed
        );
    }
}

/// Each fault, and a seed shortly before one that finds it.
const FAULTS: [(Fault, u64); 12] = [
    (Fault::ReplayedRequest, 0),
    (Fault::LateReply, 0),
    (Fault::EndFromReceipt, 60),
    (Fault::NoTail, 0),
    (Fault::FreedInTail, 310),
    (Fault::ReturnWithoutLabel, 110),
    (Fault::AbsentFreedAtOnce, 110),
    (Fault::StaleEffective, 10),
    (Fault::TokensFromNothing, 90),
    (Fault::LentBeforeHits, 80),
    (Fault::StartsAlone, 0),
    (Fault::RaisedAtOnce, 30),
];

#[test]
fn each_deliberate_fault_is_found() {
    for (fault, first) in FAULTS {
        inject(Some(fault));
        let found = first_excess(first..first + 2_000, 1_200);
        inject(None);
        println!("{fault:?}: seed {found:?}");
        assert!(found.is_some(), "{fault:?} was not found");
    }
}

#[test]
#[ignore = "a measurement: cargo test --release -p tollgate-loans ten_thousand -- --ignored --nocapture"]
fn ten_thousand_faulty_runs() {
    let mut sums = [0; 4];
    for seed in 0..10_000 {
        let plan = Plan::faulty(seed, 20_000);
        let report = run(&plan);
        let is_fine = report.over == 0 && report.over_committed == 0;
        assert!(is_fine, "seed {seed}: {} over, limits {} over", report.over, report.over_committed);
        for (sum, part) in sums.iter_mut().zip([1, report.decisions, report.loan_requests, report.granted]) {
            *sum += part;
        }
        if seed % 1_000 == 999 {
            println!(
                "{} runs, {} decisions, {} loan requests, {} lent: 0 over",
                sums[0], sums[1], sums[2], sums[3]
            );
        }
    }
}
