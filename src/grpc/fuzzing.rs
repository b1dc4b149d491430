//! Fuzz target: any bytes as the body of a call and as its `grpc-timeout`.

use hyper::body::Bytes;
use tollgate_runtime::byte_reader::ByteReader;

pub use super::received_frames::fuzzing::received_frames;
use super::{deadline::parse_timeout, unary::MessageBuffer};

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
