//! Any bytes as the body of a call and as what its headers say.

use hyper::body::Bytes;

use super::{deadline::timeout, unary::Received};
use crate::fuzzing::Piecemeal;

/// The most that a message may have here.
const MAX_BYTES: usize = 300;

/// Reads a body in pieces, which the bytes say too, and the header `grpc-timeout`.
///
/// # Panics
/// When a defect shows.
pub fn framing(bytes: &[u8]) {
    let mut input = Piecemeal(bytes);
    let (cut, length) = (input.byte(), input.byte());
    let header = input.bytes(usize::from(length % 16));
    if let Some(timeout) = timeout(header) {
        assert!(timeout.as_secs() < 100_000_000 * 3_600 && header.len() > 1);
    }
    let body = input.0;
    let whole = receive([body].into_iter());
    let pieces = receive(body.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, pieces, "the pieces of a message make a difference");
    if let Ok(message) = whole {
        let stated = body.get(5..).and_then(|rest| rest.get(..message.len()));
        assert!(stated == Some(&message[..]) && message.len() <= MAX_BYTES);
    }
}

/// The message, or the code of the error.
fn receive<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, tonic::Code> {
    let mut received = Received::default();
    for piece in pieces {
        received.add(Bytes::copy_from_slice(piece), MAX_BYTES).map_err(|status| status.code())?;
    }
    received.message(MAX_BYTES).map(<[u8]>::to_vec).map_err(|status| status.code())
}
