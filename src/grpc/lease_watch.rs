//! Connection whose resets are noticed also where HTTP/2 ignores them: after the response.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{
    frame_scanner::{DATA, FrameHeader, FrameScanner, Piece, RST_STREAM},
    unread_leases::UnreadLeases,
};
use crate::net::turn::Turns;

/// Connection that reports written data and resets to its [`UnreadLeases`], and resets to its [`Turns`]. Changes nothing.
#[derive(Debug)]
pub(super) struct LeaseWatch<I> {
    io: I,
    received: FrameScanner,
    sent: SentFrames,
    leases: UnreadLeases,
    turns: Turns,
}

/// Data frames that are sent.
#[derive(Debug, Default)]
struct SentFrames {
    scanner: FrameScanner,
    /// The frame that is being sent, if it may be a response with a lease, and the part of its payload that was sent.
    current: Option<FrameHeader>,
    payload: Vec<u8>,
}

impl SentFrames {
    fn scan(&mut self, bytes: &[u8], leases: &UnreadLeases) {
        let Self { scanner, current, payload } = self;
        scanner.scan(bytes, |piece| match piece {
            Piece::Header(header) => {
                let may_be_response = header.kind == DATA && leases.has_unwritten();
                *current = may_be_response.then_some(header);
                payload.clear();
            }
            Piece::Payload(part) => {
                let Some(frame) = current else { return };
                payload.extend_from_slice(part);
                if payload.len() == frame.length {
                    leases.written(frame.stream, payload);
                }
            }
        });
    }
}

impl<I> LeaseWatch<I> {
    pub(super) fn new(io: I, leases: UnreadLeases, turns: Turns) -> Self {
        Self { io, received: FrameScanner::after_preface(), sent: SentFrames::default(), leases, turns }
    }
}

impl<I> Drop for LeaseWatch<I> {
    fn drop(&mut self) {
        self.leases.release_unwritten();
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for LeaseWatch<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        let (leases, turns) = (&this.leases, &this.turns);
        this.received.scan(buffer.filled().get(before..).unwrap_or_default(), |piece| {
            if let Piece::Header(FrameHeader { kind: RST_STREAM, stream, .. }) = piece {
                leases.reset(stream);
                turns.reset();
            }
        });
        if leases.has_unwritten() {
            leases.release_discarded(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for LeaseWatch<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, bytes))?;
        this.sent.scan(bytes.get(..written).unwrap_or_default(), &this.leases);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, parts))?;
        let mut left = written;
        for part in parts {
            let sent = part.get(..left.min(part.len())).unwrap_or_default();
            this.sent.scan(sent, &this.leases);
            left = left.saturating_sub(sent.len());
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
