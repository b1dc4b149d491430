//! Clocks that step back or are put right.

use std::time::Duration;

use tollgate::{
    algorithm::{Algorithm, Parameters, Policy},
    descriptor::Hits,
    quota::{Quota, Window},
};

use super::{SECOND, limited};
use crate::support::stores::{Subject, at};

promises!(a_clock_that_steps_back_grants_nothing_twice, a_clock_that_is_put_right_grants_nothing_twice,);

async fn a_clock_that_steps_back_grants_nothing_twice(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(61 * SECOND), "a", policy, Hits::charge(3)).await;
        assert!(!store.decide_one(at(59 * SECOND), "a", policy, Hits::ONE).await.admitted);
        assert!(!store.decide_one(at(61 * SECOND), "a", policy, Hits::ONE).await.admitted);
        // Nor does a clock that was hours ahead keep anyone waiting for hours.
        store.decide_one(at(7200 * SECOND), "b", policy, Hits::charge(3)).await;
        assert!(!store.decide_one(at(0), "b", policy, Hits::ONE).await.admitted);
        assert!(store.decide_one(at(121 * SECOND), "b", policy, Hits::ONE).await.admitted);
    }
}

async fn a_clock_that_is_put_right_grants_nothing_twice(store: &Subject) {
    const DAY: u64 = 86_400 * SECOND;
    let quota = Quota { limit: 10, window: Window::from_seconds(86_400).expect("in range") };
    let parameters = Parameters { lease_ttl: Duration::from_secs(86_400), ..Parameters::default() };
    for algorithm in Algorithm::ALL {
        let (name, policy) = (algorithm.name(), Policy::new(algorithm, quota, &parameters).expect("valid"));
        let right = 30 * DAY;
        let decide = async |micros, hits| store.decide_one(at(micros), name, policy, hits).await;
        assert!(decide(right, Hits::charge(8)).await.admitted, "{name}");
        // What passes meanwhile counts too; a bucket that is full later than it may be admits nothing.
        let meanwhile = if algorithm == Algorithm::TokenBucket { right } else { right - 3 * DAY };
        assert!(decide(meanwhile, Hits::charge(2)).await.admitted, "{name}");
        for (micros, hits) in [
            (right - 3 * DAY, Hits::ONE),
            (right - 3 * DAY + SECOND, Hits::Peek),
            (right + SECOND, Hits::ONE),
            (right - 2 * DAY, Hits::ONE),
            (right + 2 * SECOND, Hits::ONE),
        ] {
            let verdict = decide(micros, hits).await;
            assert!(hits == Hits::Peek || !verdict.admitted, "{name} at {micros}: {verdict:?}");
            assert_eq!(verdict.remaining, 0, "{name} at {micros}");
        }
    }
}
