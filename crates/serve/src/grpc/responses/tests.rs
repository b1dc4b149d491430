//! Clients that stop reading, and leases of responses that are reset unread.

use tokio::time::timeout;
use tollgate_core::descriptor::{Descriptor, Entry, Hits};
use tollgate_fixtures::{active, memory_store};
use tollgate_limiter::{Deadline, Limiter, Modes};

use super::*;

const SHORT_TIMEOUT: Duration = Duration::from_millis(20);

#[tokio::test]
async fn a_reader_is_stalled_when_responses_are_pending_and_none_is_written() {
    let detector = StallDetector::default();
    let mut pending = Vec::new();
    let busy = async {
        // One of several is written now and then.
        for _ in 0..20 {
            pending.push(detector.track());
            pending.push(detector.track());
            sleep(SHORT_TIMEOUT / 2).await;
            drop(pending.remove(0));
        }
    };
    tokio::select! {
        _ = detector.stalled(SHORT_TIMEOUT * 50) => panic!("the reader makes progress"),
        () = busy => {}
    }
    timeout(Duration::from_secs(20), detector.stalled(SHORT_TIMEOUT)).await.expect("stalled");
    let hour = detector.stalled(Duration::from_secs(3_600));
    pending.extend((0..=MANY_PENDING).map(|_| detector.track()));
    timeout(Duration::from_secs(20), hour).await.expect("stalled long before");
    pending.clear();
    assert!(timeout(SHORT_TIMEOUT * 5, detector.stalled(SHORT_TIMEOUT)).await.is_err(), "none pending");
}

const RULES: &str =
    "domain: d\ndescriptors:\n- {key: k, rate_limit: {algorithm: concurrency, requests_per_unit: 9}}\n";

struct Subject {
    limiter: Limiter,
    leases: UnreadLeases,
}

impl Subject {
    fn new() -> Self {
        let limiter = Limiter::new(active(RULES), memory_store(), Modes::default());
        Self { limiter, leases: UnreadLeases::default() }
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
    assert_eq!(subject.leases.responses.lock().written.len(), MAX_WRITTEN);
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
