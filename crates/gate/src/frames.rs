//! Frames of HTTP/2 (RFC 9113, section 4.1): following those of one direction without decoding them, and those that are sent
//! instead of HTTP/2.

use std::mem;

use bytes::{Buf as _, BufMut, BytesMut};

/// Status message of a refused call.
pub const SHED_MESSAGE: &str = "overloaded; the deadline cannot be met";

/// Length of a frame's header.
pub(crate) const HEADER_BYTES: usize = 9;

/// Type of a frame that carries the data of a message.
pub const DATA: u8 = 0;

/// Type of a frame that opens a stream.
pub(crate) const HEADERS: u8 = 1;

/// Type of a frame that changes the priority of a stream.
pub(crate) const PRIORITY: u8 = 2;

/// Type of a frame that resets a stream.
pub const RST_STREAM: u8 = 3;

/// Type of a frame that opens a window.
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// Type of a frame that continues a header block.
pub(crate) const CONTINUATION: u8 = 9;

/// Flag of the last frame of a stream.
pub(crate) const END_STREAM: u8 = 1;

/// Flag of a header block that no further frame continues.
pub(crate) const END_HEADERS: u8 = 4;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of its payload.
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

/// Part of the scanned bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    Header(FrameHeader),
    /// Some of the payload of the frame whose header came last.
    Payload(&'b [u8]),
}

/// Position within the frames of one direction.
#[derive(Debug, Default)]
pub struct FrameScanner {
    /// The beginning of a header, of which the rest follows.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes of the current payload that follow.
    payload_bytes: usize,
}

impl FrameScanner {
    /// Whether what was scanned ends with a frame.
    pub const fn is_between_frames(&self) -> bool {
        self.payload_bytes == 0 && self.header_bytes == 0
    }

    /// Calls `visit` for each header and each part of a payload in the next `bytes`.
    pub fn scan(&mut self, mut bytes: &[u8], mut visit: impl FnMut(Piece<'_>)) {
        while !bytes.is_empty() {
            if self.payload_bytes > 0 {
                let (part, rest) = bytes.split_at(self.payload_bytes.min(bytes.len()));
                self.payload_bytes -= part.len();
                visit(Piece::Payload(part));
                bytes = rest;
                continue;
            }
            let missing = HEADER_BYTES - self.header_bytes;
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            let end = self.header_bytes + part.len();
            if let Some(filled) = self.header.get_mut(self.header_bytes..end) {
                filled.copy_from_slice(part);
            }
            self.header_bytes = end % HEADER_BYTES;
            bytes = rest;
            if end == HEADER_BYTES {
                let header = FrameHeader::parse(self.header);
                self.payload_bytes = header.length;
                visit(Piece::Header(header));
            }
        }
    }
}

impl FrameHeader {
    pub const fn parse([a, b, c, kind, flags, stream @ ..]: [u8; HEADER_BYTES]) -> Self {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // The highest bit is reserved.
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff }
    }
}

/// Bytes of dropped data after which the client's window of the connection is opened again, a fraction of it.
const CREDIT_BYTES: u32 = 16 * 1024;

/// Header block of a response without a message: the status 200, `UNAVAILABLE` and [`SHED_MESSAGE`]. It neither uses the
/// dynamic table nor changes it, since that belongs to HTTP/2: the name and the value of each field have their lengths.
const ANSWER: &[u8] = b"\x88\0\x0ccontent-type\x10application/grpc\0\x0bgrpc-status\x0214\0\x0cgrpc-message\
    \x26overloaded; the deadline cannot be met";

/// Frames to be sent between those of HTTP/2.
#[derive(Debug, Default)]
pub struct Refusals {
    frames: BytesMut,
    /// Bytes of data that HTTP/2 does not see, by which it will not open the window of the connection.
    uncredited: u32,
    /// Refused calls that were not taken.
    uncounted: u64,
}

impl Refusals {
    /// Frames that are not yet sent.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// Notes that the first `bytes` of the frames were sent.
    pub fn sent(&mut self, bytes: usize) {
        if bytes < self.frames.len() {
            self.frames.advance(bytes);
        } else {
            // Unlike an advance to the end, this leaves the room to the next frames.
            self.frames.clear();
        }
    }

    /// Answers a call with the status of a call that admission control rejects.
    pub fn refuse(&mut self, stream: u32) {
        self.uncounted += 1;
        put_header(&mut self.frames, ANSWER.len(), HEADERS, END_HEADERS | END_STREAM, stream);
        self.frames.extend_from_slice(ANSWER);
    }

    /// Counts the bytes of a frame with data that HTTP/2 does not see.
    pub fn dropped(&mut self, bytes: usize) {
        // A frame has less than 2^24.
        self.uncredited += bytes as u32;
        if self.uncredited >= CREDIT_BYTES {
            put_header(&mut self.frames, 4, WINDOW_UPDATE, 0, 0);
            self.frames.put_u32(mem::take(&mut self.uncredited));
        }
    }

    /// Takes the number of calls that were refused since.
    pub fn take_refused(&mut self) -> u64 {
        mem::take(&mut self.uncounted)
    }
}

/// Appends the header of a frame.
pub(crate) fn put_header(frames: &mut impl BufMut, length: usize, kind: u8, flags: u8, stream: u32) {
    frames.put_uint(length as u64, 3);
    frames.put_u8(kind);
    frames.put_u8(flags);
    frames.put_u32(stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers and payloads in `chunks`, each payload in one piece.
    fn pieces(mut scanner: FrameScanner, chunks: &[&[u8]]) -> Vec<(FrameHeader, Vec<u8>)> {
        let mut found: Vec<(FrameHeader, Vec<u8>)> = Vec::new();
        for chunk in chunks {
            scanner.scan(chunk, |piece| match piece {
                Piece::Header(header) => found.push((header, Vec::new())),
                Piece::Payload(part) => {
                    if let Some((_, payload)) = found.last_mut() {
                        payload.extend_from_slice(part);
                    }
                }
            });
        }
        found
    }

    #[test]
    fn frames_are_found_wherever_the_bytes_are_cut() {
        let bytes = b"\0\0\x03\0\x01\x80\0\0\x05abc\0\0\0\x04\0\0\0\0\0\0\0\x04\x03\0\0\0\x01\x07wxyz";
        let expected = [
            (FrameHeader { length: 3, kind: DATA, flags: 1, stream: 5 }, b"abc".to_vec()),
            (FrameHeader { length: 0, kind: 4, flags: 0, stream: 0 }, Vec::new()),
            (FrameHeader { length: 4, kind: RST_STREAM, flags: 0, stream: 263 }, b"wxyz".to_vec()),
        ];
        for cut in 0..bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(pieces(FrameScanner::default(), &[head, b"", tail]), expected, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(pieces(FrameScanner::default(), &single), expected);
    }

    #[test]
    fn the_end_of_a_frame_is_noticed() {
        let mut scanner = FrameScanner::default();
        let bytes = b"\0\0\x01\0\x01\0\0\0\x05a\0\0\0\x04\0\0\0\0\0";
        let ends: Vec<usize> = (0..bytes.len())
            .filter(|at| {
                scanner.scan(&bytes[*at..=*at], |_| {});
                scanner.is_between_frames()
            })
            .collect();
        assert_eq!(ends, [9, 18]);
    }

    #[test]
    fn a_refusal_has_the_message_of_admission_control_with_its_length() {
        let (before, message) = ANSWER.split_at(ANSWER.len() - SHED_MESSAGE.len());
        assert_eq!(
            (message, before.last()),
            (SHED_MESSAGE.as_bytes(), u8::try_from(message.len()).ok().as_ref())
        );
    }
}
