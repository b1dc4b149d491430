//! Answers to refused calls, and what else is sent instead of HTTP/2.

use std::{mem, sync::LazyLock};

use bytes::{Buf as _, BufMut as _, BytesMut};

use super::{
    frame_scanner::{END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE},
    shed_call::SHED_MESSAGE,
};
use crate::service::metrics;

/// Bytes of dropped data after which the client's window of the connection is opened again, a fraction of it.
const CREDIT_BYTES: u32 = 16 * 1024;

/// Status `UNAVAILABLE`.
const UNAVAILABLE: &[u8] = b"14";

/// Fields of an answer.
static ANSWER: LazyLock<Vec<u8>> = LazyLock::new(answer);

/// Frames to be sent between those of HTTP/2.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    frames: BytesMut,
    /// Bytes of data that HTTP/2 does not see, by which it will not open the window of the connection.
    uncredited: u32,
    /// Refused calls that no metric has recorded.
    uncounted: u64,
}

impl Refusals {
    /// Frames that are not yet sent.
    pub(super) fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// Notes that the first `bytes` of the frames were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        if bytes < self.frames.len() {
            self.frames.advance(bytes);
        } else {
            // Unlike an advance to the end, this leaves the room to the next frames.
            self.frames.clear();
        }
    }

    /// Answers a call with the status of a call that admission control rejects.
    pub(super) fn refuse(&mut self, stream: u32) {
        self.uncounted = self.uncounted.saturating_add(1);
        put_header(&mut self.frames, ANSWER.len(), HEADERS, END_HEADERS | END_STREAM, stream);
        self.frames.extend_from_slice(&ANSWER);
    }

    /// Counts the bytes of a frame with data that HTTP/2 does not see.
    pub(super) fn dropped(&mut self, bytes: usize) {
        self.uncredited = self.uncredited.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.uncredited >= CREDIT_BYTES {
            put_header(&mut self.frames, 4, WINDOW_UPDATE, 0, 0);
            self.frames.put_u32(mem::take(&mut self.uncredited));
        }
    }

    /// Records the calls that were refused since.
    pub(super) fn record(&mut self) {
        if self.uncounted > 0 {
            metrics::refused(mem::take(&mut self.uncounted));
        }
    }
}

fn put_header(frames: &mut BytesMut, length: usize, kind: u8, flags: u8, stream: u32) {
    frames.put_uint(length as u64, 3);
    frames.put_u8(kind);
    frames.put_u8(flags);
    frames.put_u32(stream);
}

/// Header block of a response without a message. It neither uses the dynamic table nor changes it, since that belongs to
/// HTTP/2.
fn answer() -> Vec<u8> {
    // The status 200.
    let mut block = vec![0x88];
    for (name, value) in [
        (&b"content-type"[..], &b"application/grpc"[..]),
        (b"grpc-status", UNAVAILABLE),
        (b"grpc-message", SHED_MESSAGE.as_bytes()),
    ] {
        // A field that is not added to the table.
        block.push(0);
        for text in [name, value] {
            // Below 127, which the length of an integer of one byte is.
            block.push(u8::try_from(text.len()).unwrap_or_default() & 0x7f);
            block.extend_from_slice(text);
        }
    }
    block
}
