//! Connections that cost something and give nothing.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::http2_preface::Opening;

/// A connection that breaks with [`io::ErrorKind::TimedOut`] when its client takes nothing of what is sent for too
/// long, or does not say in time what it wants to speak.
///
/// HTTP/2's own probes do not help against the first: what closes the connection would have to be sent before.
#[derive(Debug)]
pub(crate) struct Guarded<I> {
    io: I,
    patience: Duration,
    /// Until when the client has to take something.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What it has still to say, and until when.
    opening: Option<(Opening, Pin<Box<Sleep>>)>,
}

impl<I> Guarded<I> {
    /// Breaks when nothing is taken for `patience`.
    pub(crate) const fn new(io: I, patience: Duration) -> Self {
        Self { io, patience, stalled: None, opening: None }
    }

    /// Breaks as well unless HTTP/2's opening is there `within` some time.
    pub(crate) fn opened_within(self, within: Duration) -> Self {
        Self { opening: Some((Opening::default(), Box::pin(sleep(within)))), ..self }
    }

    /// Fails once it is too late.
    fn in_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some((_, deadline)) = &mut self.opening
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was asked in time"));
        }
        Ok(())
    }

    /// Looks at what came of something to send.
    fn taken<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.stalled = None;
            return sent;
        }
        let patience = self.patience;
        let deadline = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Guarded<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.in_time(cx)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if let Some((opening, _)) = &mut self.opening
            && opening.is_over(buffer.filled().get(before..).unwrap_or_default())
        {
            self.opening = None;
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Guarded<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.taken(cx, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.taken(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.io).poll_flush(cx);
        self.taken(cx, sent)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.io).poll_shutdown(cx);
        self.taken(cx, sent)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = duplex(4);
        let mut near = Guarded::new(near, SHORT * 4);
        let sending =
            tokio::spawn(async move { near.write_all(&[7; 64]).await.map_err(|error| error.kind()) });
        // Less than it is sent, but something, again and again, for longer than that.
        for _ in 0..8 {
            sleep(SHORT).await;
            far.read_exact(&mut [0; 4]).await.expect("sent");
        }
        assert!(!sending.is_finished());
        assert_eq!(sending.await.expect("no panic"), Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn a_client_has_to_open_in_time_and_may_be_silent_after() {
        for (said, is_opening) in [
            (&b""[..], false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64", true),
        ] {
            let (near, mut far) = duplex(64);
            let mut near = Guarded::new(near, LONG).opened_within(SHORT);
            far.write_all(said).await.expect("room");
            near.read_exact(&mut vec![0; said.len()]).await.expect("said");
            let next = tokio::time::timeout(if is_opening { SHORT * 4 } else { LONG }, near.read_u8()).await;
            match (is_opening, next) {
                (true, Err(_)) => {}
                (false, Ok(Err(error))) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
                (_, other) => panic!("{said:?}: {other:?}"),
            }
        }
    }
}
