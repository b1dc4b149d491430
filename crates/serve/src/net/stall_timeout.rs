//! Timeouts of a connection whose client sends no HTTP/2 preface, or stops reading.

use std::task::{Context, Poll};
use std::{io, pin::Pin, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Connection that fails with [`io::ErrorKind::TimedOut`] when a write makes no progress for too long, or when the HTTP/2
/// preface is late.
///
/// HTTP/2 keepalive does not detect the first: the frames that close the connection would have to be written before.
#[derive(Debug)]
pub struct StallTimeout<I> {
    io: I,
    write_timeout: Duration,
    /// Running while a write is pending.
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// Preface still to be received, and its deadline.
    preface: Option<(PrefaceReader, Pin<Box<Sleep>>)>,
}

impl<I> StallTimeout<I> {
    /// Fails writes that make no progress for `write_timeout`, and reads too unless the HTTP/2 preface arrives within
    /// `preface_timeout`, if there is one.
    pub fn new(io: I, write_timeout: Duration, preface_timeout: Option<Duration>) -> Self {
        let preface = preface_timeout.map(|timeout| (PrefaceReader::default(), Box::pin(sleep(timeout))));
        Self { io, write_timeout, write_deadline: None, preface }
    }

    /// Applies the write timeout to the result of a write.
    fn check_write<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_deadline = None;
            return written;
        }
        let timeout = self.write_timeout;
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => {
                let text = "write stalled: the client is not reading";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for StallTimeout<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some((_, deadline)) = &mut self.preface
            && deadline.as_mut().poll(cx).is_ready()
        {
            let text = "timed out waiting for the HTTP/2 preface";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if let Some((preface, _)) = &mut self.preface
            && preface.is_complete_with(buffer.filled().get(before..).unwrap_or_default())
        {
            self.preface = None;
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for StallTimeout<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.check_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.check_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.io).poll_flush(cx);
        self.check_write(cx, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_write(cx, written)
    }
}

/// Length of the fixed preface string.
const PREFACE_BYTES: usize = 24;

/// Length of a frame header.
const FRAME_HEADER_BYTES: usize = 9;

/// Position of the payload length in the first frame's header.
const FRAME_LENGTH_RANGE: std::ops::Range<usize> = PREFACE_BYTES..27;

/// Progress of a client through the preface and its first frame.
#[derive(Debug, Default)]
pub(super) struct PrefaceReader {
    bytes: usize,
    /// Payload length of the first frame.
    frame_length: usize,
}

impl PrefaceReader {
    /// Adds received bytes, and returns whether the preface is complete. Validating it is left to the HTTP/2 server.
    pub(super) fn is_complete_with(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if FRAME_LENGTH_RANGE.contains(&self.bytes) {
                self.frame_length = self.frame_length << 8 | usize::from(*byte);
            }
            self.bytes += 1;
        }
        self.bytes >= PREFACE_BYTES + FRAME_HEADER_BYTES + self.frame_length
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const SHORT_TIMEOUT: Duration = Duration::from_millis(50);
    const LONG_TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_client_that_stops_reading_times_out_and_a_slow_one_does_not() {
        let (near, mut far) = duplex(4);
        let mut near = StallTimeout::new(near, SHORT_TIMEOUT * 4, None);
        let sending =
            tokio::spawn(async move { near.write_all(&[7; 64]).await.map_err(|error| error.kind()) });
        // A slow reader: less than is sent, but some, for longer than the timeout.
        for _ in 0..8 {
            sleep(SHORT_TIMEOUT).await;
            far.read_exact(&mut [0; 4]).await.expect("sent");
        }
        assert!(!sending.is_finished());
        assert_eq!(sending.await.expect("no panic"), Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn the_preface_has_a_timeout_and_silence_after_it_has_none() {
        for (sent, is_complete) in [
            (&b""[..], false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64", true),
        ] {
            let (near, mut far) = duplex(64);
            let mut near = StallTimeout::new(near, LONG_TIMEOUT, Some(SHORT_TIMEOUT));
            far.write_all(sent).await.expect("room");
            near.read_exact(&mut vec![0; sent.len()]).await.expect("sent");
            let timeout = if is_complete { SHORT_TIMEOUT * 4 } else { LONG_TIMEOUT };
            let next = tokio::time::timeout(timeout, near.read_u8()).await;
            match (is_complete, next) {
                (true, Err(_)) => {}
                (false, Ok(Err(error))) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
                (_, other) => panic!("{sent:?}: {other:?}"),
            }
        }
    }
}
