//! docs/admitted.svg is what the algorithms do now, and shows what the documentation states.

use self::admitted::{FILE, LIMIT, WINDOW_MS, admitted, draw, max_within};
use crate::support::prelude::*;

#[path = "../examples/admitted.rs"]
mod admitted;

#[test]
fn the_picture_is_up_to_date() {
    let picture = fs::read_to_string(project(FILE)).expect("it is committed");
    assert!(picture == draw(), "`cargo run --example admitted` draws {FILE} anew");
}

#[test]
fn only_a_fixed_window_admits_twice_its_limit_across_an_edge() {
    let most = |algorithm, length| max_within(&admitted(algorithm), length);
    assert_eq!(most(Algorithm::FixedWindow, 1_000), 2 * LIMIT);
    assert_eq!(most(Algorithm::SlidingWindow, 1_000), LIMIT + 1);
    assert_eq!(most(Algorithm::TokenBucket, 1_000), LIMIT);
    assert_eq!(most(Algorithm::SlidingWindowLog, 1_000), LIMIT);
    assert_eq!(most(Algorithm::Concurrency, 1_000), LIMIT);
}

#[test]
fn no_window_has_more_than_its_algorithm_promises() {
    for length in [250, 1_000, 5_000, WINDOW_MS] {
        let most = |algorithm| max_within(&admitted(algorithm), length);
        assert!(most(Algorithm::SlidingWindowLog) <= LIMIT);
        assert!(most(Algorithm::SlidingWindow) <= 2 * LIMIT);
        // One token comes each second, the one at the start of the stretch included.
        assert!(most(Algorithm::TokenBucket) <= LIMIT + length as usize / 1_000);
    }
}
