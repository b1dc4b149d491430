//! Routes requests of a region to its own store or to the primary region.

use std::{sync::Arc, time::Duration};

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{PrimaryCalls, PrimaryRole};
use crate::{
    BackgroundQueue, Decisions, Store, StoreError,
    request::{Requests, TagRequest},
};

/// Time for a decision of the primary region where the caller states none: a round trip around the globe, and a pause of
/// one of the two instances.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

/// Longest time for a decision of the primary region.
const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether another region decides, by request.
type Remote = SmallVec<[bool; 4]>;

/// Router between a region's own store and the primary region. Clones are handles on the same counters.
#[derive(Clone, Debug)]
pub struct PrimaryRouter(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    own: Store,
    primary: PrimaryCalls,
    /// Refunds that are sent to the primary region.
    background: BackgroundQueue,
}

impl PrimaryRouter {
    /// Decides in `own` all counters but those of another primary region.
    pub fn new(own: Store, primary: PrimaryCalls, background: BackgroundQueue) -> Self {
        Self(Arc::new(Parts { own, primary, background }))
    }

    /// The region's own store.
    pub fn own(&self) -> &Store {
        &self.0.own
    }

    pub(crate) fn background(&self) -> &BackgroundQueue {
        &self.0.background
    }

    /// Whether another region decides the request.
    fn is_remote(&self, request: &TagRequest) -> bool {
        request.is_at_primary() && self.0.primary.role() != PrimaryRole::Own
    }

    /// Deadline of a decision that begins now, given the timeout of its caller, if known: that of the primary region's. The
    /// own store has its own, if that is earlier.
    pub(crate) fn deadline(caller_timeout: Option<Duration>) -> Instant {
        let now = Instant::now();
        now.checked_add(caller_timeout.unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT)).unwrap_or(now)
    }

    /// Decides every request, as [`Store::decide`].
    pub(crate) async fn decide(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
        // Once, since the role may change meanwhile.
        let remote: Remote = match requests.iter().any(TagRequest::is_at_primary) {
            true => requests.iter().map(|request| self.is_remote(request)).collect(),
            false => Remote::new(),
        };
        match remote.contains(&true) {
            false => self.decide_here(requests, deadline).await,
            true => self.decide_both(requests, &remote, deadline).await,
        }
    }

    /// Decides requests in the own store.
    async fn decide_here(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
        let own = self.own();
        let own_deadline = own.deadline(None);
        let earlier = deadline.and_then(|deadline| own_deadline.map(|own| own.min(deadline)));
        own.decide_here(requests, earlier.or(own_deadline)).await
    }

    /// Decides requests here and, as `remote` states, at the primary region, at the same time.
    async fn decide_both(
        &self,
        requests: &[TagRequest],
        remote: &[bool],
        deadline: Option<Instant>,
    ) -> Decisions {
        let deadline = deadline.unwrap_or_else(|| Self::deadline(None));
        let of = |is_remote: bool| {
            let requests = requests.iter().zip(remote).filter(move |(_, remote)| **remote == is_remote);
            requests.map(|(request, _)| request)
        };
        let here: Requests = of(false).cloned().collect();
        let there = join_all(of(true).map(|request| self.0.primary.decide(request, deadline)));
        let here = async {
            match here.is_empty() {
                true => Decisions::new(),
                false => self.decide_here(&here, Some(deadline)).await,
            }
        };
        let (there, here) = join(there, here).await;
        let (mut there, mut here) = (there.into_iter(), here.into_iter());
        let decision = |is_remote: &bool| if *is_remote { there.next() } else { here.next() };
        // There is a decision for each.
        remote
            .iter()
            .map(decision)
            .map(|decision| decision.unwrap_or(Err(StoreError::MalformedReply)))
            .collect()
    }

    /// Decides from the cache of the own store.
    pub(crate) fn decide_from_cache(&self, requests: &[TagRequest]) -> Decisions {
        let of = |request: &TagRequest| match self.is_remote(request) {
            true => Err(StoreError::Overloaded),
            false => self.own().decide_one_from_cache(request),
        };
        requests.iter().map(of).collect()
    }

    /// The requests that the own store decides, and those of the primary region.
    pub(crate) fn split(&self, requests: Requests) -> (Requests, Requests) {
        requests.into_iter().partition(|request| !self.is_remote(request))
    }
}
