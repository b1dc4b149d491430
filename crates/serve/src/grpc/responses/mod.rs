//! Responses of a connection until its client has read them: their bodies, which hold the permits of a lease until they are
//! written; detection of clients that stop reading, of idle connections, and of leases whose names never reach the caller.
//!
//! A caller that resets a call has not read its response: then it does not have the name of the lease, and cannot
//! release it. If the response has ended, HTTP/2 ignores the reset, so resets are read from the connection itself
//! ([`super::http2`]). Otherwise a client of the caller that disconnects at the right moment, again and again,
//! could hold every permit of a limit until `lease_ttl` ends.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{collections::VecDeque, mem, pin::Pin};

use hyper::Response;
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::{select, sync::Notify, time::sleep};
use tollgate_limiter::HeldPermits;
use tonic::{Status, body::Body};

/// Body of a response. If it names a lease, it holds the lease's permits until its last frame is taken for writing: a
/// caller that has reset the call by then drops the body unread, which releases them. For a caller that resets it later,
/// without having read it, see [`UnreadLeases`].
#[derive(Debug)]
pub struct ResponseBody {
    payload: Payload,
    permits: Option<HeldPermits>,
    /// Dropped once the body is written.
    pending: Option<PendingResponse>,
}

#[derive(Debug)]
enum Payload {
    /// Body from a side service, or of an error.
    Other(Body),
    /// One message and the success trailers.
    Message(Bytes),
    SuccessTrailers,
    Done,
}

impl ResponseBody {
    /// Wraps the response of a side service, with the permits of the lease that it names, or an error.
    pub(super) fn wrap(mut response: Response<Body>) -> Response<Self> {
        let permits = response.extensions_mut().remove();
        response.map(|body| Self { payload: Payload::Other(body), permits, pending: None })
    }

    /// A framed message, with the permits of the lease that it names.
    pub(super) fn message(message: Bytes, permits: Option<HeldPermits>) -> Self {
        Self { payload: Payload::Message(message), permits, pending: None }
    }

    /// Counts the response as pending until the client has read it.
    pub(super) fn track(&mut self, detector: &StallDetector) {
        self.pending = Some(detector.track());
    }

    /// Counts the response as pending if it names a lease.
    pub(super) fn track_lease(&mut self, detector: &StallDetector) {
        if self.permits.is_some() {
            self.track(detector);
        }
    }

    /// Notes that a frame is taken for writing.
    fn taken(&mut self, frame: Option<&Result<Frame<Bytes>, Status>>) {
        let Some(permits) = &self.permits else { return };
        match frame {
            Some(Ok(frame)) => {
                if let (Some(message), Some(pending)) = (frame.data_ref(), &self.pending) {
                    pending.0.leases.add(message, permits);
                }
                if frame.is_trailers() {
                    permits.hand_over();
                }
            }
            Some(Err(_)) => {}
            None => permits.hand_over(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.permits.iter().filter(|permits| !permits.is_handed_over()).for_each(HeldPermits::release);
    }
}

impl Payload {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, rest) = match self {
            Self::Other(body) => return hyper::body::Body::poll_frame(Pin::new(body), cx),
            Self::Message(message) => (Frame::data(mem::take(message)), Self::SuccessTrailers),
            Self::SuccessTrailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
                (Frame::trailers(trailers), Self::Done)
            }
            Self::Done => return Poll::Ready(None),
        };
        *self = rest;
        Poll::Ready(Some(Ok(frame)))
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(self.payload.poll_frame(cx));
        self.taken(frame.as_ref());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.payload {
            Payload::Other(body) => body.is_end_stream(),
            Payload::Message(_) | Payload::SuccessTrailers => false,
            Payload::Done => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.payload {
            Payload::Other(body) => body.size_hint(),
            // Unknown on purpose, so that no content-length is sent; tonic sends none either.
            Payload::Message(_) | Payload::SuccessTrailers | Payload::Done => SizeHint::default(),
        }
    }
}

/// Pending responses above which a connection slows others down: each new call on it is compared with all of them.
const MANY_PENDING: usize = 128;

/// Timeout while many responses are pending. Their callers have long timed out.
const MANY_PENDING_TIMEOUT: Duration = Duration::from_secs(1);

/// Responses of one connection that wait for its client's flow-control windows. HTTP/2 keepalive and the write timeout of
/// the socket do not detect this: a client may acknowledge every PING and never open a window.
#[derive(Clone, Debug, Default)]
pub struct StallDetector(Arc<Counts>);

/// Handles on an idle connection: of the order of connections, its permit, its dispatch, its frames and its task.
const IDLE_HANDLES: usize = 5;

/// Time from its beginning in which a call keeps its connection from being evicted.
const MAX_BUSY_NANOS: u64 = 1_000_000_000;

/// Beginning of the times of calls.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

#[derive(Debug, Default)]
struct Counts {
    /// Time of the latest call; 0 before the first.
    called_at: AtomicU64,
    /// Whether the connection is to close for another one.
    is_evicted: AtomicBool,
    pending: AtomicUsize,
    written: AtomicUsize,
    /// Notified when many responses become pending, or the connection is to close.
    changed: Notify,
    leases: UnreadLeases,
}

/// Reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Its client does not read responses.
    Stalled,
    /// Another one takes its place.
    Evicted,
}

/// A response waiting to be written; dropped once it is.
#[derive(Debug)]
pub struct PendingResponse(Arc<Counts>);

/// Nanoseconds since the first use of this clock, which is that of the first call.
pub fn nanos_of(time: Instant) -> u64 {
    u64::try_from(time.duration_since(*EPOCH).as_nanos()).unwrap_or(u64::MAX)
}

impl StallDetector {
    /// Notes that a call begins.
    pub(super) fn called(&self, now: Instant) {
        self.0.called_at.store(nanos_of(now), Ordering::Relaxed);
    }

    /// Time of the latest call, in nanoseconds of [`nanos_of`]; 0 before the first.
    pub fn called_at(&self) -> u64 {
        self.0.called_at.load(Ordering::Relaxed)
    }

    /// Whether a call, which has a handle too, is in progress: not one whose message has not arrived for long.
    pub fn is_busy(&self, now: u64) -> bool {
        let is_recent = now.saturating_sub(self.called_at()) < MAX_BUSY_NANOS;
        is_recent && Arc::strong_count(&self.0) > IDLE_HANDLES
    }

    /// Whether this is the only handle on a connection that has ended.
    pub fn has_ended(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Closes the connection for another one, after the calls that its client has begun.
    pub fn evict(&self) {
        self.0.is_evicted.store(true, Ordering::Relaxed);
        self.0.changed.notify_one();
    }

    /// Counts a response as pending.
    pub(super) fn track(&self) -> PendingResponse {
        if self.0.pending.fetch_add(1, Ordering::Relaxed) == MANY_PENDING {
            self.0.changed.notify_one();
        }
        PendingResponse(Arc::clone(&self.0))
    }

    /// Leases of the connection's recent responses.
    pub(super) fn leases(&self) -> &UnreadLeases {
        &self.0.leases
    }

    /// Completes once responses have been pending for `stall_timeout` to twice that without one being written, or for a
    /// second or two if many are; or, once, when the connection is evicted.
    pub(super) async fn stalled(&self, stall_timeout: Duration) -> CloseReason {
        loop {
            let before = self.0.written.load(Ordering::Relaxed);
            let pending = self.0.pending.load(Ordering::Relaxed);
            let timeout =
                if pending > MANY_PENDING { stall_timeout.min(MANY_PENDING_TIMEOUT) } else { stall_timeout };
            select! {
                () = sleep(timeout) => {}
                () = self.0.changed.notified() => {
                    if self.0.is_evicted.swap(false, Ordering::Relaxed) {
                        return CloseReason::Evicted;
                    }
                    // The shorter timeout applies from now on.
                    continue;
                }
            }
            if pending > 0 && before == self.0.written.load(Ordering::Relaxed) {
                return CloseReason::Stalled;
            }
        }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.0.written.fetch_add(1, Ordering::Relaxed);
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Written responses of a connection whose resets are still noticed, the latest ones. A reset comes within a round trip.
const MAX_WRITTEN: usize = 512;

/// Responses of a connection that are not yet written.
const MAX_UNWRITTEN: usize = 512;

/// Time after which a response that is still not written after a reset counts as the one that was reset. HTTP/2
/// discards that one.
const DISCARDED_AFTER: Duration = Duration::from_secs(1);

/// Leases of a connection's recent responses.
#[derive(Debug, Default)]
pub(super) struct UnreadLeases {
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
        let mut responses = self.responses.lock();
        if responses.unwritten.len() < MAX_UNWRITTEN {
            let taken_at = Instant::now();
            responses.unwritten.push(Unwritten { message, permits, taken_at, may_be_reset: false });
            self.has_unwritten.store(true, Ordering::Relaxed);
        }
    }

    /// Whether data that is written may be one of the responses.
    pub(super) fn has_unwritten(&self) -> bool {
        self.has_unwritten.load(Ordering::Relaxed)
    }

    /// Notes that `data` was written to a stream.
    pub(super) fn written(&self, stream: u32, data: &[u8]) {
        let mut responses = self.responses.lock();
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
        self.has_unwritten.store(!responses.unwritten.is_empty(), Ordering::Relaxed);
    }

    /// Releases the permits of a response whose stream the caller has reset.
    pub(super) fn reset(&self, stream: u32) {
        let mut responses = self.responses.lock();
        let at = responses.written.iter().rposition(|(written, _)| *written == stream);
        match at.and_then(|at| responses.written.remove(at)) {
            Some((_, permits)) => permits.release(),
            None => responses.unwritten.iter_mut().for_each(|response| response.may_be_reset = true),
        }
    }

    /// Releases the permits of responses that were discarded because of a reset.
    pub(super) fn release_discarded(&self, now: Instant) {
        let mut responses = self.responses.lock();
        let is_discarded = |response: &mut Unwritten| {
            response.may_be_reset && now.duration_since(response.taken_at) >= DISCARDED_AFTER
        };
        responses.unwritten.extract_if(.., is_discarded).for_each(|response| response.permits.release());
        self.has_unwritten.store(!responses.unwritten.is_empty(), Ordering::Relaxed);
    }

    /// Releases the permits of responses that were never written: their connection has closed.
    pub(super) fn release_unwritten(&self) {
        let unwritten = mem::take(&mut self.responses.lock().unwritten);
        unwritten.iter().for_each(|response| response.permits.release());
        self.has_unwritten.store(false, Ordering::Relaxed);
    }
}
