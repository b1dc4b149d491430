//! Corrections after replies that came too late for their callers.
//!
//! A call that timed out was decided locally, and is usually decided by the store as well, a little later. Its late reply
//! states whether it was charged, so that the store counts what passed: a charge of a hit that was denied is refunded, and
//! a hit that passed without a charge is deferred.

use std::num::NonZeroU64;

use tollgate_core::algorithm::{Charging, Policy, Verdict};
use tollgate_core::descriptor::Hits;
use tollgate_store::request::{Check, TagRequest, Veto, push_check};
use tollgate_store::{Decisions, LateOutcome, Store, StoreError};

use super::{Fallback, FallbackVerdicts};
use crate::{Requests, refund};

/// A charge that timed out, with its substitute.
#[derive(Debug)]
struct LateCharge {
    /// Position of the check in the call.
    at: usize,
    hits: NonZeroU64,
    /// The share that counted the hits, if they passed.
    share: Option<Policy>,
}

impl Fallback {
    /// Corrects the charges of those calls that timed out, when their replies arrive; `is_refunded` as in [`Self::defer`], and
    /// `is_allowed` as in [`Self::send_deferred`].
    pub(crate) fn correct_late(
        &self,
        store: &Store,
        substituted: &FallbackVerdicts,
        calls: &Requests,
        decisions: &Decisions,
        is_refunded: bool,
        is_allowed: impl Fn() -> bool + Clone + Send + Sync + 'static,
    ) {
        for (call, decision) in calls.iter().zip(decisions) {
            let Err(StoreError::Timeout(_, Some(reply))) = decision else { continue };
            let charges = substituted.late_charges(call, is_refunded);
            if charges.is_empty() {
                continue;
            }
            let (fallback, store, call) = (self.clone(), store.clone(), call.clone());
            let is_allowed = is_allowed.clone();
            reply.on_arrival(move |outcome| {
                fallback.correct(&store, &call, &charges, &outcome);
                fallback.send_deferred(&store, is_allowed);
            });
        }
    }

    fn correct(&self, store: &Store, call: &TagRequest, charges: &[LateCharge], outcome: &LateOutcome) {
        let mut refunds = Requests::new();
        for LateCharge { at, hits, share } in charges {
            let Some((cell, check)) = call.checks_with_cells().nth(*at) else { continue };
            match (share, made_charge(call, *at, outcome)) {
                (None, Some(verdict)) => {
                    let hits = Hits::RefundCharge { amount: *hits, made_at: verdict.decided_at };
                    let refund = Check { hits, ..*check };
                    push_check(&mut refunds, Charging::Independent, cell.key.clone(), refund);
                }
                (Some(share), None) if !is_denied_and_counted(call, *at, outcome) => {
                    self.deferred.add(&cell.key, check, *share, hits.get());
                }
                (Some(_), _) | (None, None) => {}
            }
        }
        store.refund_in_background(refunds);
    }
}

impl FallbackVerdicts {
    /// The charges of a call whose substitute the store may have decided otherwise.
    fn late_charges(&self, call: &TagRequest, is_refunded: bool) -> Vec<LateCharge> {
        let vetoes = |check: &Check| check.veto == Veto::Alone && self.has_denied(check.descriptor);
        let is_withdrawn = if call.is_of_rule {
            call.checks().any(vetoes)
        } else {
            is_refunded && call.charging == Charging::AllOrNone
        };
        let late = |at: usize, check: &Check| {
            let Hits::Charge(hits) = check.hits else { return None };
            let counted = self.passed(check.descriptor).map(|(share, _)| share);
            let is_denied = is_withdrawn || self.has_denied(check.descriptor);
            if check.policy.algorithm().takes_leases() || counted.is_none() && !is_denied {
                return None;
            }
            Some(LateCharge { at, hits, share: counted.filter(|_| !is_withdrawn) })
        };
        call.checks().enumerate().filter_map(|(at, check)| late(at, check)).collect()
    }

    /// Whether the substitute of a descriptor's counter denies.
    fn has_denied(&self, descriptor: usize) -> bool {
        let mut verdicts = self.verdicts.iter().flatten();
        verdicts.any(|(of, verdict)| *of == descriptor && !verdict.admitted)
    }
}

/// Whether the store denied the hits of a check and counted them all the same, as a fixed window does.
fn is_denied_and_counted(call: &TagRequest, at: usize, outcome: &LateOutcome) -> bool {
    let LateOutcome::Decided(verdicts) = outcome else { return false };
    let is_counted = |check: &Check| {
        check.policy.counts_denied() && check.counting(call.charging) == Charging::Independent
    };
    // Under a ban, no hits are counted.
    let is_banned = |verdict: &Verdict| verdict.ban.is_some_and(|ban| ban.is_enforced);
    verdicts.get(at).is_some_and(|(_, verdict)| !verdict.admitted && !is_banned(verdict))
        && call.checks().nth(at).is_some_and(is_counted)
}

/// The verdict of a check that was charged.
fn made_charge(call: &TagRequest, at: usize, outcome: &LateOutcome) -> Option<Verdict> {
    let LateOutcome::Decided(verdicts) = outcome else { return None };
    let (_, verdict) = verdicts.get(at)?;
    (verdict.admitted && !refund::is_vetoed(call, verdicts)).then_some(*verdict)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;
    use tollgate_store::LateReply;

    use super::*;
    use crate::test_prelude::*;

    const LIMIT: u32 = 5;

    fn call(algorithm: Algorithm, charging: Charging) -> TagRequest {
        let quota = Quota { limit: LIMIT.into(), window: Window::of(Unit::Hour) };
        let policy = Policy::nearest(algorithm, quota, &Parameters::default());
        let own = Check::own(RecordId::alone(algorithm), policy, Hits::ONE);
        let check = Check { veto: Veto::Alone, ..own };
        let key = CellKey::open("d", [Entry { key: "k", value: "v" }].into_iter());
        TagRequest::new(charging, key, check)
    }

    struct Case {
        store: MemoryStore,
        fallback: Fallback,
        call: TagRequest,
    }

    impl Case {
        fn new(call: TagRequest) -> Self {
            let time = Arc::new(AtomicU64::new(1_000_000_000_000));
            let store = || MemoryStore::new(64, Clock::Manual(Arc::clone(&time)));
            let replicas = Replicas::new(NonZeroU32::MIN);
            Self { store: store(), fallback: Fallback::new(OnStoreError::Local, store(), replicas), call }
        }

        /// Decides the call locally, where it passes if `passes`, and then receives the reply.
        async fn time_out(&self, passes: bool, outcome: impl FnOnce(&MemoryStore) -> LateOutcome) {
            let store = Store::new(self.store.clone());
            let mut local = self.call.clone();
            if !passes {
                let amount = NonZeroU64::new(u64::from(LIMIT) + 1).expect("not 0");
                local.cells[0].checks[0].hits = Hits::Charge(amount);
            }
            let mut substituted = FallbackVerdicts::default();
            substituted.local_requests.push(local);
            self.fallback.decide_locally(&mut substituted, NonZeroU32::MIN);
            let reply = LateReply::default();
            let error = StoreError::Timeout(Duration::ZERO, Some(reply.clone()));
            let decisions: Decisions = SmallVec::from_iter([Err(error)]);
            let calls: Requests = [self.call.clone()].into_iter().collect();
            let is_refunded = !passes;
            self.fallback.correct_late(&store, &substituted, &calls, &decisions, is_refunded, || false);
            reply.arrived(outcome(&self.store));
            let taken = self.fallback.deferred.take_some(9);
            self.fallback.charge(&store, taken).await;
        }

        fn used(&self) -> u64 {
            let check = &self.call.cells[0].checks[0];
            let peek = Check { hits: Hits::Peek, ..*check };
            self.store.decide(&TagRequest::new(Charging::Independent, self.call.cells[0].key.clone(), peek))
                [0]
            .1
            .used
        }
    }

    fn cases() -> impl Iterator<Item = Case> {
        let algorithms = [
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::SlidingWindowLog,
            Algorithm::TokenBucket,
        ];
        algorithms.into_iter().flat_map(|algorithm| {
            [Charging::Independent, Charging::AllOrNone].map(|charging| Case::new(call(algorithm, charging)))
        })
    }

    #[tokio::test]
    async fn what_passed_is_counted_once_and_what_was_denied_is_not() {
        for case in cases() {
            let decided = |store: &MemoryStore| LateOutcome::Decided(store.decide(&case.call));
            case.time_out(true, decided).await;
            assert_eq!(case.used(), 1, "passed and charged: {:?}", case.call);
            case.time_out(true, |_| LateOutcome::NotCharged).await;
            assert_eq!(case.used(), 2, "passed and not charged: {:?}", case.call);
            case.time_out(false, decided).await;
            assert_eq!(case.used(), 2, "denied and charged: {:?}", case.call);
            case.time_out(false, |_| LateOutcome::NotCharged).await;
            assert_eq!(case.used(), 2, "denied and not charged: {:?}", case.call);
        }
    }

    #[tokio::test]
    async fn a_hit_that_passed_while_the_counter_was_exhausted_counts_beyond_the_limit() {
        for case in cases() {
            // A bucket has no debt without an overdraft.
            if case.call.cells[0].checks[0].policy.algorithm() == Algorithm::TokenBucket {
                continue;
            }
            (0..LIMIT).for_each(|_| drop(case.store.decide(&case.call)));
            case.time_out(true, |store| LateOutcome::Decided(store.decide(&case.call))).await;
            assert_eq!(case.used(), u64::from(LIMIT) + 1, "{:?}", case.call);
        }
    }
}
