//! Time bounds, checked on machines that may stall for a while.

use std::time::Duration;

/// The number of rounds that must agree.
const MAJORITY: usize = 3;

/// Measures a few rounds, most of which have to take less than `bound`. What is too slow by itself is so in most rounds,
/// and a stall of the machine in few.
pub(crate) fn keeps_to(bound: Duration, what: &str, mut measure: impl FnMut() -> Duration) {
    let mut rounds = Rounds::new(bound);
    while !rounds.are_decided(what) {
        rounds.add(measure());
    }
}

/// Async variant of [`keeps_to`].
pub(crate) async fn keeps_to_async(bound: Duration, what: &str, mut measure: impl AsyncFnMut() -> Duration) {
    let mut rounds = Rounds::new(bound);
    while !rounds.are_decided(what) {
        rounds.add(measure().await);
    }
}

/// Checks that of the times of many rounds, no more than one in ten reach `bound`.
pub(crate) fn mostly_keep_to(bound: Duration, what: &str, times: &[Duration]) {
    let late: Vec<_> = times.iter().filter(|took| **took >= bound).collect();
    assert!(
        !times.is_empty() && late.len() <= times.len() / 10,
        "{what}: {} of {} times are {bound:?} or more: {late:?}",
        late.len(),
        times.len()
    );
}

struct Rounds {
    bound: Duration,
    times: Vec<Duration>,
}

impl Rounds {
    const fn new(bound: Duration) -> Self {
        Self { bound, times: Vec::new() }
    }

    fn add(&mut self, took: Duration) {
        self.times.push(took);
    }

    /// Whether most kept to the bound; fails if most did not.
    fn are_decided(&self, what: &str) -> bool {
        let good = self.times.iter().filter(|took| **took < self.bound).count();
        assert!(
            self.times.len() - good < MAJORITY,
            "{what}: most take {:?} or more: {:?}",
            self.bound,
            self.times
        );
        good >= MAJORITY
    }
}

#[test]
fn a_single_stall_is_tolerated_and_slowness_is_not() {
    let judge = |millis: &[u64]| {
        let mut millis = millis.iter();
        keeps_to(Duration::from_millis(10), "it", || Duration::from_millis(*millis.next().expect("decided")));
        assert_eq!(millis.next(), None, "decided later than it was");
    };
    judge(&[1, 2, 3]);
    judge(&[1, 10, 99, 2, 3]);
    let slow = std::panic::catch_unwind(|| judge(&[10, 1, 2, 10, 11]));
    assert!(
        slow.expect_err("it is slow").downcast_ref::<String>().expect("a text").contains("most take 10ms")
    );
    let times =
        |late: u64| (0..20).map(|number| Duration::from_secs(u64::from(number < late))).collect::<Vec<_>>();
    mostly_keep_to(Duration::from_secs(1), "it", &times(2));
    std::panic::catch_unwind(|| mostly_keep_to(Duration::from_secs(1), "it", &times(3)))
        .expect_err("too many");
    std::panic::catch_unwind(|| mostly_keep_to(Duration::from_secs(1), "it", &[])).expect_err("none");
}
