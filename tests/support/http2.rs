//! Frames of HTTP/2, for callers that leave at a given moment.

use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{net::TcpStream, time::timeout};

pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Calls on one connection of a [`Leaver`].
const CALLS: u32 = 40;

/// An HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The first bytes of a client that takes `window` bytes of data on a stream before it says that it takes more.
pub(crate) fn greeting(window: u32) -> Vec<u8> {
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let settings = frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), settings].concat()
}

/// A call with one message.
pub(crate) fn call(stream: u32, path: &str, message: &impl Message) -> Vec<u8> {
    let literal = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    // POST and http by their numbers, then the path, the authority and the content type by their names' numbers.
    let headers = [
        vec![0x83, 0x86, 0x04],
        literal(path),
        vec![0x01],
        literal("test"),
        vec![0x0f, 0x10],
        literal("application/grpc"),
    ];
    let encoded = message.encode_to_vec();
    let data = [&[0], &u32::try_from(encoded.len()).expect("short").to_be_bytes()[..], &encoded].concat();
    [frame(1, 4, stream, &headers.concat()), frame(0, 1, stream, &data)].concat()
}

/// Resets a stream, as Envoy does for a call that it cancels.
pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8_u32.to_be_bytes())
}

/// A caller that leaves: it resets each of its calls, though the response may be on its way or have arrived.
#[derive(Debug)]
pub(crate) struct Leaver {
    port: u16,
    connection: Option<(TcpStream, u32)>,
}

impl Leaver {
    pub(crate) const fn new(port: u16) -> Self {
        Self { port, connection: None }
    }

    /// Calls, and leaves after some time.
    pub(crate) async fn call(&mut self, path: &str, message: &impl Message, patience: Duration) {
        let (connection, stream) = match &mut self.connection {
            Some((connection, stream)) => (connection, stream),
            None => {
                let mut connection = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
                connection.write_all(&greeting(65_535)).await.expect("sent");
                let (connection, stream) = self.connection.insert((connection, 1));
                (connection, stream)
            }
        };
        connection.write_all(&call(*stream, path, message)).await.expect("sent");
        let mut ignored = Vec::new();
        let _ = timeout(patience, connection.read_to_end(&mut ignored)).await;
        connection.write_all(&reset(*stream)).await.expect("sent");
        *stream += 2;
        if *stream > 2 * CALLS {
            self.close().await;
        }
    }

    /// Ends the connection once all was read, since its end would overtake the resets otherwise.
    pub(crate) async fn close(&mut self) {
        if let Some((mut connection, _)) = self.connection.take() {
            connection.shutdown().await.expect("open");
            let end = timeout(Duration::from_secs(60), connection.read_to_end(&mut Vec::new())).await;
            assert!(end.is_ok(), "it stays open");
        }
    }
}
