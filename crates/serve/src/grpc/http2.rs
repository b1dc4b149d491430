//! HTTP/2 below hyper: the frames between the socket and HTTP/2, of which calls that it need not see are refused; and what HTTP/2
//! refuses before a call is dispatched, streams that it resets and connections that it ends. The caller's proxy treats these as
//! failures, and lets requests pass by default, so each is counted and some are logged.
//!
//! ```text
//! socket ──> FrameFilter, with the gate ──> HTTP/2
//! ```

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{error::Error as _, io, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_gate::{
    DATA, FrameHeader, FrameScanner, Gate, Head, Piece, RST_STREAM, ReceivedFrames, Refusals,
};
use tollgate_metrics::{CounterFamily, Metric};
use tollgate_runtime::log_budget::LogBudget;

use super::overload::EarlyAdmission;
use super::responses::{StallDetector, UnreadLeases};
use crate::{net::read_budget::ReadBudget, service::metrics};

/// Metrics of HTTP/2.
pub static METRICS: &[&dyn Metric] = &[&HTTP2_REFUSED];

static HTTP2_REFUSED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_http2_refused_total",
    &["reason"],
    "Calls that HTTP/2 reset, and connections that it ended, by error code.",
    &[["protocol_error"], ["refused_stream"], ["compression_error"], ["enhance_your_calm"]],
);

/// Lines logged at once, and the time after which there is another one.
static LOG: LogBudget = LogBudget::new(4, Duration::from_secs(60));

/// Error code of a header block that cannot be read.
const COMPRESSION_ERROR: u32 = 9;

/// Records a connection that HTTP/2 ends for a fault of the client.
pub(super) fn connection_ended(error: &hyper::Error) {
    let error = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    if let Some(reason) = error.filter(|error| error.is_library()).and_then(h2::Error::reason) {
        record(reason.into(), "connection");
    }
}

/// Records a call that HTTP/2 resets, or a connection that it ends.
fn record(code: u32, scope: &'static str) {
    // RFC 9113, section 7.
    let reason = match code {
        // The response came before the end of the request.
        0 | 8 => return,
        1 => "protocol_error",
        6 => "frame_size_error",
        7 => "refused_stream",
        COMPRESSION_ERROR => "compression_error",
        11 => "enhance_your_calm",
        _ => "other",
    };
    HTTP2_REFUSED.increment([reason]);
    if let Some(suppressed) = LOG.take() {
        tracing::warn!(reason, scope, suppressed, "refused by HTTP/2");
    }
}

/// Bytes of answers to refused calls at which nothing more is read: the client does not read them.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Bytes of a frame that is held which are read at once.
const CHUNK_BYTES: usize = 512;

/// Connection between the socket and HTTP/2, which drops the frames of refused calls and sends the answers to them. Reports
/// written data and resets to its [`UnreadLeases`], and resets to its [`ReadBudget`].
#[derive(Debug)]
pub(super) struct FrameFilter<I> {
    io: I,
    received: ReceivedFrames,
    sent: SentFrames,
    refusals: Refusals,
    /// Whether a read waits until answers are sent.
    is_read_waiting: bool,
    calls: Calls,
}

/// Decides on the calls of the connection.
#[derive(Debug)]
struct Calls {
    admission: EarlyAdmission,
    responses: StallDetector,
    read_budget: ReadBudget,
}

impl Gate for Calls {
    fn refuses(&mut self, call: &Head) -> bool {
        call.is_rate_limit && self.admission.refuses(call.timeout, Instant::now)
    }

    fn passed(&mut self) {
        self.admission.admitted();
    }

    fn reset(&mut self, stream: u32) {
        self.responses.leases().reset(stream);
        self.read_budget.reset();
    }
}

/// Frames that HTTP/2 sends.
#[derive(Debug, Default)]
struct SentFrames {
    scanner: FrameScanner,
    /// Whether HTTP/2 has sent its first frame, which no other may precede.
    has_begun: bool,
    /// The frame that is being sent, if it is a reset or may be a response with a lease, and the part of its payload that was
    /// sent.
    current: Option<FrameHeader>,
    payload: Vec<u8>,
}

impl SentFrames {
    fn scan(&mut self, bytes: &[u8], leases: &UnreadLeases) {
        let Self { scanner, has_begun, current, payload } = self;
        *has_begun = true;
        scanner.scan(bytes, |piece| match piece {
            Piece::Header(header) => {
                let is_read = header.kind == RST_STREAM || header.kind == DATA && leases.has_unwritten();
                *current = is_read.then_some(header);
                payload.clear();
            }
            Piece::Payload(part) => {
                let Some(frame) = current else { return };
                payload.extend_from_slice(part);
                match <[u8; 4]>::try_from(payload.as_slice()) {
                    _ if payload.len() < frame.length => {}
                    Ok(code) if frame.kind == RST_STREAM => record(u32::from_be_bytes(code), "call"),
                    _ => leases.written(frame.stream, payload),
                }
            }
        });
    }

    /// Whether other frames may be sent now.
    const fn is_between_frames(&self) -> bool {
        self.has_begun && self.scanner.is_between_frames()
    }
}

impl<I> FrameFilter<I> {
    pub(super) fn new(
        io: I,
        admission: EarlyAdmission,
        responses: StallDetector,
        read_budget: ReadBudget,
    ) -> Self {
        Self {
            io,
            received: ReceivedFrames::default(),
            sent: SentFrames::default(),
            refusals: Refusals::default(),
            is_read_waiting: false,
            calls: Calls { admission, responses, read_budget },
        }
    }
}

impl<I> Drop for FrameFilter<I> {
    fn drop(&mut self) {
        self.calls.responses.leases().release_unwritten();
    }
}

impl<I: AsyncWrite + Unpin> FrameFilter<I> {
    /// Sends the answers to refused calls, unless HTTP/2 is in the middle of a frame.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        metrics::shed(self.refusals.take_refused());
        while !self.refusals.frames().is_empty() && self.sent.is_between_frames() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, self.refusals.frames()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.refusals.sent(written);
        }
        if self.is_read_waiting {
            self.is_read_waiting = false;
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + Unpin> FrameFilter<I> {
    /// Reads frames until some pass.
    fn poll_frames(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, received, refusals, calls, .. } = self;
        loop {
            if received.take_ready(buffer) {
                return Poll::Ready(Ok(()));
            }
            if received.is_lost {
                record(COMPRESSION_ERROR, "connection");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "malformed headers")));
            }
            let missing = received.missing();
            if missing > 0 {
                let mut chunk = [0; CHUNK_BYTES];
                let (chunk, _) = chunk.split_at_mut(missing.min(CHUNK_BYTES));
                let mut part = ReadBuf::new(chunk);
                ready!(Pin::new(&mut *io).poll_read(cx, &mut part))?;
                if part.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                received.complete(part.filled(), calls, refusals);
                continue;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut *io).poll_read(cx, buffer))?;
            let Some(bytes) = buffer.filled_mut().get_mut(before..).filter(|bytes| !bytes.is_empty()) else {
                return Poll::Ready(Ok(()));
            };
            let passed = received.filter(bytes, calls, refusals);
            buffer.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for FrameFilter<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.refusals.frames().len() >= MAX_ANSWER_BYTES {
            let sent = this.poll_answers(cx)?;
            if sent.is_pending() || this.refusals.frames().len() >= MAX_ANSWER_BYTES {
                // HTTP/2 flushes before it waits.
                this.is_read_waiting = true;
                return Poll::Pending;
            }
        }
        this.calls.admission.begin_read();
        ready!(this.poll_frames(cx, buffer))?;
        if this.calls.responses.leases().has_unwritten() {
            this.calls.responses.leases().release_discarded(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for FrameFilter<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_answers(cx))?;
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, bytes))?;
        this.sent.scan(bytes.get(..written).unwrap_or_default(), this.calls.responses.leases());
        Poll::Ready(Ok(written))
    }

    // Without vectored writes, h2 copies responses of up to 1 KiB into one buffer for many; with them, each response of
    // 256 bytes or more is a write of its own, which costs as much as the rest of the call.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answers(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
