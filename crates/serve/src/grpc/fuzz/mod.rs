//! Fuzz targets: any bytes as the body of a call, as its `grpc-timeout`, and as the frames of a client.

use hyper::body::Bytes;
use tokio::io::ReadBuf;
use tollgate_gate::{Gate, Head, PREFACE_BYTES, ReceivedFrames, Refusals, parse_timeout};
use tollgate_runtime::fuzz::ByteReader;

use super::request_body::MessageBuffer;

/// Size limit of a message in this target.
const MAX_BYTES: usize = 300;

/// Reads a body in chunks of a size taken from the input, and a `grpc-timeout` header.
///
/// # Panics
/// On a defect.
pub fn framing(bytes: &[u8]) {
    let mut input = ByteReader(bytes);
    let (cut, length) = (input.byte(), input.byte());
    let header = input.bytes(usize::from(length % 16));
    if let Some(timeout) = parse_timeout(header) {
        assert!(timeout.as_secs() < 100_000_000 * 3_600 && header.len() > 1);
    }
    let body = input.0;
    let whole = receive([body].into_iter());
    let chunked = receive(body.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, chunked, "chunk boundaries change the result");
    if let Ok(message) = whole {
        let expected = body.get(5..).and_then(|rest| rest.get(..message.len()));
        assert!(expected == Some(&message[..]) && message.len() <= MAX_BYTES);
    }
}

/// Returns the message, or the code of the error.
fn receive<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, tonic::Code> {
    let mut buffer = MessageBuffer::default();
    for chunk in chunks {
        buffer.push(Bytes::copy_from_slice(chunk), MAX_BYTES).map_err(|status| status.code())?;
    }
    buffer.message(MAX_BYTES).map(<[u8]>::to_vec).map_err(|status| status.code())
}

/// Refuses the calls whose bits are set, eight in turn.
struct Pattern {
    refused: u8,
    calls: u32,
}

impl Gate for Pattern {
    fn refuses(&mut self, _: &Head) -> bool {
        let bit = self.calls % 8;
        self.calls = self.calls.wrapping_add(1);
        self.refused & (1 << bit) > 0
    }

    fn passed(&mut self) {}

    fn reset(&mut self, _: u32) {}
}

#[derive(Debug, PartialEq, Eq)]
struct Filtered {
    /// Bytes for HTTP/2.
    passed: Vec<u8>,
    /// Bytes sent to the client.
    answers: Vec<u8>,
    /// Whether headers passed in another form.
    has_replaced: bool,
}

/// Filters the frames of a connection, whole and in chunks of a size taken from the input.
///
/// # Panics
/// On a defect.
pub fn received_frames(bytes: &[u8]) {
    let mut input = ByteReader(bytes);
    let (cut, refused) = (input.byte(), input.byte());
    let sent = input.0;
    let whole = filter([sent].into_iter(), refused);
    let chunked = filter(sent.chunks(usize::from(cut).max(1)), refused);
    assert_eq!(whole, chunked, "chunk boundaries change what passes");
    if let (0, Some(filtered)) = (refused, whole) {
        assert!(filtered.answers.is_empty());
        let is_same = sent.starts_with(&filtered.passed);
        assert!(filtered.has_replaced || is_same, "bytes change though no call is refused");
    }
}

/// Returns none for a connection that ends.
fn filter<'a>(chunks: impl Iterator<Item = &'a [u8]>, refused: u8) -> Option<Filtered> {
    let (mut received, mut refusals) = (ReceivedFrames::default(), Refusals::default());
    let (mut gate, mut passed) = (Pattern { refused, calls: 0 }, Vec::new());
    let mut preface = [0; PREFACE_BYTES];
    received.filter(&mut preface, &mut gate, &mut refusals);
    for chunk in chunks {
        let mut rest = chunk;
        while !rest.is_empty() {
            let missing = received.missing();
            if missing > 0 {
                let (part, after) = rest.split_at(missing.min(rest.len()));
                received.complete(part, &mut gate, &mut refusals);
                rest = after;
            } else {
                let mut part = std::mem::take(&mut rest).to_vec();
                let length = received.filter(&mut part, &mut gate, &mut refusals);
                passed.extend_from_slice(part.get(..length).unwrap_or_default());
            }
            take_ready(&mut received, &mut passed);
        }
    }
    let (answers, has_replaced) = (refusals.frames().to_vec(), received.has_own_table);
    (!received.is_lost).then_some(Filtered { passed, answers, has_replaced })
}

fn take_ready(received: &mut ReceivedFrames, passed: &mut Vec<u8>) {
    let mut buffer = [0; 64];
    loop {
        let mut buffer = ReadBuf::new(&mut buffer);
        if !received.take_ready(&mut buffer) {
            return;
        }
        passed.extend_from_slice(buffer.filled());
    }
}
