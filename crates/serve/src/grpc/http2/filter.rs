//! Connection between the socket and HTTP/2: refuses calls that HTTP/2 need not see, counts those that HTTP/2 resets, and notices
//! resets that HTTP/2 ignores, those after the response.

use std::task::{Context, Poll, ready};
use std::{io, pin::Pin, time::Instant};

use crate::grpc::{overload::EarlyAdmission, unread_responses::UnreadLeases};
use crate::{net::read_budget::ReadBudget, service::metrics};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_gate::{
    DATA, FrameHeader, FrameScanner, Gate, Head, Piece, RST_STREAM, ReceivedFrames, Refusals,
};

/// Bytes of answers to refused calls at which nothing more is read: the client does not read them.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Bytes of a frame that is held which are read at once.
const CHUNK_BYTES: usize = 512;

/// Connection that drops the frames of refused calls and sends the answers to them. Reports written data and resets to its
/// [`UnreadLeases`], and resets to its [`ReadBudget`].
#[derive(Debug)]
pub(in crate::grpc) struct FrameFilter<I> {
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
    leases: UnreadLeases,
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
        self.leases.reset(stream);
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
                    Ok(code) if frame.kind == RST_STREAM => super::record(u32::from_be_bytes(code), "call"),
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
    pub(in crate::grpc) fn new(
        io: I,
        admission: EarlyAdmission,
        leases: UnreadLeases,
        read_budget: ReadBudget,
    ) -> Self {
        Self {
            io,
            received: ReceivedFrames::default(),
            sent: SentFrames::default(),
            refusals: Refusals::default(),
            is_read_waiting: false,
            calls: Calls { admission, leases, read_budget },
        }
    }
}

impl<I> Drop for FrameFilter<I> {
    fn drop(&mut self) {
        self.calls.leases.release_unwritten();
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
                super::record(super::COMPRESSION_ERROR, "connection");
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
        if this.calls.leases.has_unwritten() {
            this.calls.leases.release_discarded(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for FrameFilter<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_answers(cx))?;
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, bytes))?;
        this.sent.scan(bytes.get(..written).unwrap_or_default(), &this.calls.leases);
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
