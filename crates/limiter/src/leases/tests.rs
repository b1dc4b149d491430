//! Requests under leases that their callers name.

use super::*;
use crate::{Fallback, test_prelude::*};

const RULES: &str = "
domain: d
hash_tag: [team]
descriptors:
- key: team
  rate_limit: {unit: day, requests_per_unit: 2000, reserve: {}}
  descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000, reserve: {}}
  - key: kind
    descriptors:
    - key: model
      value: 'gpt*'
      share_threshold: true
      rate_limit: {unit: day, requests_per_unit: 1000, reserve: {}}
- key: user
  rate_limit: {unit: day, requests_per_unit: 1000, reserve: {}}
- key: plain
  rate_limit: {name: calls, unit: day, requests_per_unit: 5}
- key: gpu
  rate_limit: {algorithm: concurrency, requests_per_unit: 5}
- key: tried
  shadow_mode: true
  rate_limit: {unit: day, requests_per_unit: 5}
";

type Entries<'e> = &'e [(&'e str, &'e str)];

const TEAM: Entries<'_> = &[("team", "a")];
const USER: Entries<'_> = &[("team", "a"), ("user", "me")];
const OTHER_TAG: Entries<'_> = &[("user", "me")];

struct Attempts {
    limiter: Limiter,
    rules: Arc<ActiveRules>,
}

impl Attempts {
    fn new() -> Self {
        let clock = Clock::Manual(Arc::new(AtomicU64::new(1_800_057_600_000_000)));
        let rules = active_rules(RULES, Options::default());
        let store = || MemoryStore::new(1_000, clock.clone());
        let fallback = Some(Fallback::new(OnStoreError::Local, store(), Replicas::new(NonZeroU32::MIN)));
        let limiter = Limiter::new(Arc::clone(&rules), Store::new(store()), Modes::default());
        let limiter = Limiter { clock, fallback, ..limiter };
        Self { limiter, rules }
    }

    fn named(&self) -> Limiter {
        let lease = NonZeroU64::new(66).map(LeaseId::new);
        Limiter { lease, ..self.limiter.clone() }
    }
}

fn descriptors<'e>(entries: &[Entries<'e>], hits: u64) -> Vec<Descriptor<'e>> {
    entries.iter().map(|entries| descriptor(entries, Hits::charge(hits))).collect()
}

async fn decide(limiter: &Limiter, entries: &[Entries<'_>], hits: u64) -> (Code, Option<HeldPermits>) {
    decided(limiter, "d", &descriptors(entries, hits), |decision, permits| (decision.code, permits)).await
}

/// Hits that are used or held of the team's budget.
async fn taken(limiter: &Limiter) -> (u64, u64) {
    decided(limiter, "d", &descriptors(&[TEAM], 0), |decision, _| {
        let verdict = decision.statuses[0].limited().expect("a limit").verdict;
        (verdict.used, verdict.held)
    })
    .await
}

#[tokio::test]
async fn an_abandoned_attempt_ends_no_reservation_that_the_next_one_may_have() {
    let attempts = Attempts::new();
    let (code, abandoned) = decide(&attempts.named(), &[TEAM, USER], 480).await;
    assert_eq!(code, Code::Ok);
    let (code, _) = decide(&attempts.named(), &[TEAM, USER], 480).await;
    assert_eq!((code, taken(&attempts.limiter).await), (Code::Ok, (0, 480)));
    // The caller did not wait for the first response.
    drop(abandoned);
    assert_eq!(taken(&attempts.limiter).await, (0, 480));
    // That of a lease which the server named, and its caller does not have.
    let (_, abandoned) = decide(&attempts.limiter, &[TEAM, USER], 100).await;
    assert_eq!(taken(&attempts.limiter).await, (0, 580));
    drop(abandoned);
    assert_eq!(taken(&attempts.limiter).await, (0, 480));
}

#[tokio::test]
async fn a_denied_attempt_ends_no_reservation_and_holds_nothing() {
    let attempts = Attempts::new();
    let (code, _) = decide(&attempts.named(), &[TEAM, USER], 1_500).await;
    assert_eq!((code, taken(&attempts.limiter).await), (Code::OverLimit, (0, 0)));
    let (code, permits) = decide(&attempts.named(), &[TEAM, USER], 600).await;
    assert!(code == Code::Ok && permits.is_some_and(|permits| permits.is_handed_over()));
    // A repetition passes, whatever is left.
    let (code, _) = decide(&attempts.named(), &[TEAM, USER], 600).await;
    assert_eq!((code, taken(&attempts.limiter).await), (Code::Ok, (0, 600)));
}

#[tokio::test]
async fn an_abandoned_attempt_in_an_outage_ends_no_local_reservation() {
    let attempts = Attempts::new();
    let emergency = [("d".into(), "*".into(), SwitchMode::Emergency)];
    attempts.rules.set_lists(Arc::new(Lists::new(1, [], emergency)));
    let (code, abandoned) = decide(&attempts.named(), &[TEAM], 480).await;
    assert_eq!(code, Code::Ok);
    let (code, _) = decide(&attempts.named(), &[TEAM], 480).await;
    assert_eq!((code, taken(&attempts.limiter).await), (Code::Ok, (0, 480)));
    drop(abandoned);
    assert_eq!(taken(&attempts.limiter).await, (0, 480));
}

#[test]
fn a_request_that_reserves_reads_no_limit_of_another_tag() {
    let attempts = Attempts::new();
    let limiter = attempts.named();
    let guard = limiter.rules();
    let check =
        |descriptors: &[Descriptor<'_>]| limiter.check_lease(&guard.get().expect("rules"), "d", descriptors);
    let [reserved, read, other] =
        [descriptors(&[TEAM], 480), descriptors(&[USER], 0), descriptors(&[OTHER_TAG], 0)]
            .map(|mut all| all.remove(0));
    assert_eq!(check(&[reserved.clone(), read]), Ok(()));
    assert_eq!(check(&[reserved, other.clone()]), Err(NotRepeatable::SeveralTags));
    assert_eq!(check(&[other]), Ok(()), "nothing is reserved");
}

#[test]
fn only_what_a_repetition_would_not_charge_again_has_a_named_lease() {
    let attempts = Attempts::new();
    let check = |limiter: &Limiter, entries: &[Entries<'_>]| {
        let guard = limiter.rules();
        limiter.check_lease(&guard.get().expect("rules"), "d", &descriptors(entries, 480))
    };
    let other = |label: &str| Err(NotRepeatable::OtherLimit(label.into()));
    let model = |value| [("team", "a"), ("kind", "chat"), ("model", value)];
    let (large, small) = (model("gpt-large"), model("gpt-small"));
    for (entries, expected) in [
        (&[TEAM, USER][..], Ok(())),
        (&[USER, &[("none", "x")]], Ok(())),
        (&[TEAM, &[("plain", "x")]], other("calls")),
        (&[&[("gpu", "x")]], other("gpu")),
        (&[&[("tried", "x")], TEAM], other("tried")),
        (&[TEAM, OTHER_TAG], Err(NotRepeatable::SeveralTags)),
        (&[TEAM, TEAM], Err(NotRepeatable::SharedCounter)),
        (&[&large, &small], Err(NotRepeatable::SharedCounter)),
    ] {
        assert_eq!(check(&attempts.named(), entries), expected, "{entries:?}");
        assert_eq!(check(&attempts.limiter, entries), Ok(()), "{entries:?}");
    }
}
