//! The counters that a request would meet, for those who look at them or give them back.

use std::time::Duration;

use tokio::time::Instant;

use super::{Modes, matched, matched::Target, requests};
use tollgate_core::{algorithm::Verdict, descriptor::Descriptor};
use tollgate_rules::{Domain, Switched};
use tollgate_store::{Store, StoreError, request::Requests};

/// How long one who looks waits for the store: more than a request does, for nothing is held up meanwhile.
const WAIT: Duration = Duration::from_millis(800);

/// The counters, for those who look at them or give them back. It is no request in the metrics, nor hits of a rule;
/// those of the store have it. Nothing stands in for the store: what it does not say is unknown.
#[derive(Clone, Debug)]
pub struct Counters {
    store: Store,
    modes: Modes,
}

/// What the counter of one descriptor said, if it has one.
pub type Seen = Option<Result<Verdict, StoreError>>;

/// What is asked of the counters that descriptors meet.
#[derive(Debug)]
pub struct Asks {
    calls: Requests,
    descriptors: usize,
}

impl Counters {
    /// Those in `store`, of a process in these modes.
    pub const fn new(store: Store, modes: Modes) -> Self {
        Self { store, modes }
    }

    /// The modes of the process.
    pub const fn modes(&self) -> Modes {
        self.modes
    }

    /// What the descriptors ask of the counters that they meet by the rules of `domain`: in practice to be looked at, or
    /// to be given back. Lists and switches make no difference, and the name of a lease gives nothing back: that is done
    /// by who holds it. Takes long where values are long and expressions are many.
    pub fn checks(&self, domain: &Domain, descriptors: &[Descriptor<'_>]) -> Asks {
        let mut targets = matched::targets(domain, &Switched::default(), descriptors);
        targets.iter_mut().for_each(Target::keep_places);
        let calls = requests::calls(domain, descriptors, &targets, None, self.modes);
        Asks { calls, descriptors: descriptors.len() }
    }

    /// Asks the counters what each of them says, in the order of the descriptors.
    pub async fn ask(&self, Asks { calls, descriptors }: &Asks) -> Vec<Seen> {
        let deadline = self.store.deadline(None).and_then(|_| Instant::now().checked_add(WAIT));
        let decisions = self.store.decide(calls, deadline).await;
        let mut seen: Vec<Seen> = (0..*descriptors).map(|_| None).collect();
        for (call, decision) in calls.iter().zip(decisions) {
            match decision {
                Ok(verdicts) => {
                    verdicts.into_iter().for_each(|(at, verdict)| put(&mut seen, at, Ok(verdict)));
                }
                Err(error) => {
                    call.checks().for_each(|ask| put(&mut seen, ask.descriptor, Err(error.clone())));
                }
            }
        }
        seen
    }
}

fn put(seen: &mut [Seen], at: usize, said: Result<Verdict, StoreError>) {
    if let Some(place) = seen.get_mut(at) {
        *place = Some(said);
    }
}
