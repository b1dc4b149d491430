//! One decision of each algorithm on a counter that is in use: the new state, and the verdict.

use std::time::Duration;

use divan::{Bencher, black_box};
use tollgate::{
    algorithm::{Algorithm, Charging, CounterState, Parameters, Policy},
    clock::Timestamp,
    descriptor::Hits,
    quota::{Quota, Unit, Window},
};

/// Time between two requests: the refill rate equals the request rate.
const STEP: Duration = Duration::from_micros(60_000_000 / 100);

fn policy(algorithm: Algorithm) -> Policy {
    let quota = Quota { limit: 100, window: Window::of(Unit::Minute) };
    // Permits are released by expiry only.
    let parameters = Parameters { lease_ttl: Duration::from_secs(60), ..Parameters::default() };
    Policy::new(algorithm, quota, &parameters).expect("valid")
}

fn decide(bencher: Bencher<'_, '_>, algorithm: Algorithm, step: Duration) {
    let policy = policy(algorithm);
    let mut state = CounterState::default();
    let mut now = Timestamp::from_micros(1_700_000_000_000_000);
    let mut once = move || {
        now = now.plus(step);
        let (hits, charging) = (black_box(Hits::ONE), Charging::Independent);
        let admitted = policy.apply(&mut state, now, hits, charging);
        let summary = policy.summary(&state, now, hits);
        policy.verdict(summary, now, hits, admitted, charging)
    };
    for _ in 0..200 {
        once();
    }
    bencher.bench_local(once);
}

#[divan::bench(args = Algorithm::ALL)]
fn within_the_limit(bencher: Bencher<'_, '_>, algorithm: Algorithm) {
    decide(bencher, algorithm, STEP);
}

#[divan::bench(args = Algorithm::ALL)]
fn over_the_limit(bencher: Bencher<'_, '_>, algorithm: Algorithm) {
    decide(bencher, algorithm, Duration::ZERO);
}
