//! Leases whose names are on their way to the caller.
//!
//! A caller that resets a call has not read its response: then it does not have the name of the lease, and cannot
//! release it. If the response has ended, HTTP/2 ignores the reset, so resets are read from the connection itself
//! ([`super::frame_filter`]). Otherwise a client of the caller that disconnects at the right moment, again and again,
//! could hold every permit of a limit until `lease_ttl` ends.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_limiter::HeldPermits;

/// Written responses of a connection whose resets are still noticed, the latest ones. A reset comes within a round trip.
const MAX_WRITTEN: usize = 512;

/// Responses of a connection that are not yet written.
const MAX_UNWRITTEN: usize = 512;

/// Time after which a response that is still not written after a reset counts as the one that was reset. HTTP/2
/// discards that one.
const DISCARDED_AFTER: Duration = Duration::from_secs(1);

/// Leases of a connection's recent responses. Clones are handles on the same leases.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadLeases(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there are unwritten responses.
    has_unwritten: AtomicBool,
    responses: Mutex<Responses>,
}

#[derive(Debug, Default)]
struct Responses {
    unwritten: Vec<Unwritten>,
    /// The streams of written responses, in the order of writing.
    written: VecDeque<(u32, HeldPermits)>,
}

/// A response that HTTP/2 has taken for writing.
#[derive(Debug)]
struct Unwritten {
    /// Unique, since it contains the name of the lease.
    message: Bytes,
    permits: HeldPermits,
    taken_at: Instant,
    /// Whether a stream was reset since, which may be that of the response.
    may_be_reset: bool,
}

impl UnreadLeases {
    /// Adds a response that is about to be written.
    pub(super) fn add(&self, message: &Bytes, permits: &HeldPermits) {
        let (message, permits) = (message.clone(), permits.clone());
        let mut responses = self.0.responses.lock();
        if responses.unwritten.len() < MAX_UNWRITTEN {
            let taken_at = Instant::now();
            responses.unwritten.push(Unwritten { message, permits, taken_at, may_be_reset: false });
            self.0.has_unwritten.store(true, Ordering::Relaxed);
        }
    }

    /// Whether data that is written may be one of the responses.
    pub(super) fn has_unwritten(&self) -> bool {
        self.0.has_unwritten.load(Ordering::Relaxed)
    }

    /// Notes that `data` was written to a stream.
    pub(super) fn written(&self, stream: u32, data: &[u8]) {
        let mut responses = self.0.responses.lock();
        match responses.unwritten.iter().position(|response| *response.message == *data) {
            Some(at) => {
                let Unwritten { permits, .. } = responses.unwritten.swap_remove(at);
                if responses.written.len() >= MAX_WRITTEN {
                    responses.written.pop_front();
                }
                responses.written.push_back((stream, permits));
            }
            // A response in several frames, of which this is the first: its resets are not noticed.
            None => responses.unwritten.retain(|response| !response.message.starts_with(data)),
        }
        self.0.has_unwritten.store(!responses.unwritten.is_empty(), Ordering::Relaxed);
    }

    /// Releases the permits of a response whose stream the caller has reset.
    pub(super) fn reset(&self, stream: u32) {
        let mut responses = self.0.responses.lock();
        let at = responses.written.iter().rposition(|(written, _)| *written == stream);
        match at.and_then(|at| responses.written.remove(at)) {
            Some((_, permits)) => permits.release(),
            None => responses.unwritten.iter_mut().for_each(|response| response.may_be_reset = true),
        }
    }

    /// Releases the permits of responses that were discarded because of a reset.
    pub(super) fn release_discarded(&self, now: Instant) {
        let mut responses = self.0.responses.lock();
        let is_discarded = |response: &mut Unwritten| {
            response.may_be_reset && now.saturating_duration_since(response.taken_at) >= DISCARDED_AFTER
        };
        responses.unwritten.extract_if(.., is_discarded).for_each(|response| response.permits.release());
        self.0.has_unwritten.store(!responses.unwritten.is_empty(), Ordering::Relaxed);
    }

    /// Releases the permits of responses that were never written: their connection has closed.
    pub(super) fn release_unwritten(&self) {
        let unwritten = mem::take(&mut self.0.responses.lock().unwritten);
        unwritten.iter().for_each(|response| response.permits.release());
        self.0.has_unwritten.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tollgate_core::{
        clock::{Clock, Timestamp},
        descriptor::{Descriptor, Entry, Hits},
    };
    use tollgate_limiter::{ActiveRules, Deadline, Limiter, Modes};
    use tollgate_rules::config;
    use tollgate_store::{MemoryStore, Store};

    use super::*;

    const RULES: &str =
        "domain: d\ndescriptors:\n- {key: k, rate_limit: {algorithm: concurrency, requests_per_unit: 9}}\n";

    struct Subject {
        limiter: Limiter,
        leases: UnreadLeases,
    }

    impl Subject {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            fs::write(directory.path().join("rules.yaml"), RULES).expect("written");
            let options = config::Options {
                merge_domains: false,
                strict: true,
                allow_empty: false,
                ..Default::default()
            };
            let loaded = config::load(directory.path(), &options).expect("valid rules");
            let rules = Arc::new(ActiveRules::default());
            rules.replace(Arc::new(loaded.rules));
            let clock = Clock::manual(Timestamp::from_micros(1_700_000_000_000_000));
            let store = Store::Memory(MemoryStore::new(1_000, clock));
            Self { limiter: Limiter::new(rules, store, Modes::default()), leases: UnreadLeases::default() }
        }

        async fn decide(&self, hits: Hits) -> (u64, Option<HeldPermits>) {
            let entries = [Entry { key: "k", value: "v" }].into_iter().collect();
            let active = self.limiter.rules();
            let active = active.get().expect("rules");
            let descriptors = [Descriptor { entries, limit: None, hits }];
            let decided = self.limiter.decide(active, "d", &descriptors, Deadline::UNKNOWN).await;
            let (decision, permits) = decided.expect("a decision");
            let used = decision.statuses.first().and_then(|status| status.limited()).expect("a limit");
            (used.verdict.used, permits)
        }

        /// Takes a response with a lease for writing.
        async fn take(&self, message: &'static [u8]) {
            let (_, permits) = self.decide(Hits::ONE).await;
            let permits = permits.expect("a permit");
            self.leases.add(&Bytes::from_static(message), &permits);
            permits.hand_over();
        }

        async fn held(&self) -> u64 {
            self.decide(Hits::Peek).await.0
        }
    }

    #[tokio::test]
    async fn the_reset_of_a_written_response_releases_its_permits_alone() {
        let subject = Subject::new();
        for (stream, message) in [(1, &b"first"[..]), (3, b"second")] {
            subject.take(message).await;
            subject.leases.written(stream, b"another");
            subject.leases.written(stream, message);
        }
        assert!(!subject.leases.has_unwritten());
        for (stream, held) in [(5, 2), (3, 1), (3, 1), (1, 0)] {
            subject.leases.reset(stream);
            assert_eq!(subject.held().await, held, "after the reset of {stream}");
        }
    }

    #[tokio::test]
    async fn the_latest_written_responses_are_kept() {
        let subject = Subject::new();
        let (_, permits) = subject.decide(Hits::ONE).await;
        let permits = permits.expect("a permit");
        for stream in 0..1_000 {
            subject.leases.add(&Bytes::from_static(b"m"), &permits);
            subject.leases.written(stream, b"m");
        }
        assert_eq!(subject.leases.0.responses.lock().written.len(), MAX_WRITTEN);
        subject.leases.reset(0);
        assert_eq!(subject.held().await, 1);
        subject.leases.reset(999);
        assert_eq!(subject.held().await, 0);
    }

    #[tokio::test]
    async fn a_response_that_a_reset_discards_is_released_after_a_second() {
        let subject = Subject::new();
        subject.take(b"discarded").await;
        let later = Instant::now() + DISCARDED_AFTER;
        subject.leases.release_discarded(later);
        assert_eq!(subject.held().await, 1, "nothing was reset");
        subject.leases.reset(1);
        subject.leases.release_discarded(Instant::now());
        assert_eq!(subject.held().await, 1, "it may still be written");
        subject.leases.release_discarded(later);
        assert_eq!((subject.held().await, subject.leases.has_unwritten()), (0, false));
    }

    #[tokio::test]
    async fn a_response_in_several_frames_is_left_to_its_caller() {
        let subject = Subject::new();
        subject.take(b"split").await;
        subject.leases.written(1, b"spl");
        subject.leases.reset(1);
        subject.leases.release_discarded(Instant::now() + DISCARDED_AFTER);
        subject.leases.release_unwritten();
        assert_eq!(subject.held().await, 1);
    }

    #[tokio::test]
    async fn a_closed_connection_releases_what_was_never_written() {
        let subject = Subject::new();
        subject.take(b"written").await;
        subject.leases.written(1, b"written");
        subject.take(b"unwritten").await;
        subject.leases.release_unwritten();
        assert_eq!(subject.held().await, 1);
    }
}
