//! A client's connection, TCP or Unix.

use std::{
    io,
    net::TcpStream as StdTcpStream,
    os::unix::net::UnixStream as StdUnixStream,
    pin::Pin,
    task::{Context, Poll},
};

use rustix::io::ioctl_fionread;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::balance::ConnectionPermit;
use crate::net::read_budget::Unread;

/// Accepted connection, not registered with a runtime yet.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(StdTcpStream),
    Unix(StdUnixStream),
}

/// Connection registered with its worker's runtime. Dropping it closes it and releases its permit.
#[derive(Debug)]
pub(super) struct Io {
    stream: Stream,
    _permit: ConnectionPermit,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Io {
    /// Registers `accepted` with the current runtime.
    pub(super) fn new(accepted: Accepted, permit: ConnectionPermit) -> io::Result<Self> {
        let stream = match accepted {
            Accepted::Tcp(stream) => {
                stream.set_nodelay(true)?;
                Stream::Tcp(TcpStream::from_std(stream)?)
            }
            Accepted::Unix(stream) => Stream::Unix(UnixStream::from_std(stream)?),
        };
        Ok(Self { stream, _permit: permit })
    }
}

impl Unread for Io {
    fn unread_bytes(&self) -> u64 {
        let unread = match &self.stream {
            Stream::Tcp(stream) => ioctl_fionread(stream),
            Stream::Unix(stream) => ioctl_fionread(stream),
        };
        unread.unwrap_or(0)
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
