//! Sliding windows whose length changes between two versions of the rules.

use tollgate_core::algorithm::{Charging, CounterState};
use tollgate_core::{clock::Timestamp, descriptor::Hits};

use super::*;

const SECOND: u64 = 1_000_000;

/// A second in the middle of a minute.
const CHANGED_AT: u64 = 1_700_000_010;

fn rules(window: u32, limit: u32) -> Loaded {
    let limit = format!("{{window: {window}s, requests_per_unit: {limit}, algorithm: sliding_window}}");
    let file = format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {limit}\n");
    let directory = directory(&[("rules.yaml", &file)]);
    load(directory.path(), &Options::default()).expect("valid rules")
}

#[test]
fn a_client_within_a_shortened_sliding_window_is_denied_for_three_windows_at_most() {
    for window in [1, 2, 4] {
        let (former, changed) = (rules(60, 600), rules(window, 10 * window));
        changed.rules.succeed(&former.rules, Timestamp::from_micros(CHANGED_AT * SECOND));
        let policy = |loaded: &Loaded| loaded.rules.rules().next().and_then(|rule| rule.policy()).unwrap();
        let (former, changed) = (policy(&former), policy(&changed));
        let mut state = CounterState::default();
        // 5 requests a second, of 10 that the former and the changed rule permit.
        let mut last_denied = 0;
        for request in 0..150 {
            let at = (CHANGED_AT - 10) * SECOND + request * SECOND / 5;
            let policy = if at < CHANGED_AT * SECOND { &former } else { &changed };
            let now = Timestamp::from_micros(at);
            if !policy.apply(&mut state, now, Hits::ONE, Charging::Independent) {
                last_denied = at - CHANGED_AT * SECOND;
            }
        }
        assert!(last_denied < 3 * u64::from(window) * SECOND, "{window} s: {last_denied} µs");
    }
}
