//! Frames that a client sends, less those of calls that are refused.
//!
//! HTTP/2 spends about two fifths of the time of a whole decision on a call that is rejected, so that an overloaded worker
//! would be occupied by rejections alone. Here a refusal costs a glance at its frames. HTTP/2 never sees the call: it
//! skips the number of the stream. A header block for which HTTP/2 would reset its call passes without the fields that are the
//! reason.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::VecDeque};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::ReadBuf;

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameHeader, HEADER_BYTES, HEADERS, PRIORITY, RST_STREAM,
    Refusals, WINDOW_UPDATE, put_header,
};
use super::header_block::{Head, HeaderTable, MAX_COPY_BYTES};

/// Bytes that a client sends before its first frame.
pub const PREFACE_BYTES: usize = 24;

/// Largest header block with the headers of its frames, which waits in memory for the rest. HTTP/2 refuses the calls of larger
/// ones.
const MAX_BLOCK_BYTES: usize = HEADER_BYTES + 16 * 1024;

/// Header block that is no call, with a method alone: HTTP/2 resets its stream.
const NO_CALL: u8 = 0x83;

/// Frames of a header block after the first.
const MAX_CONTINUATIONS: usize = 8;

/// Refused calls of a connection whose messages still arrive. With more, calls are left to HTTP/2.
const MAX_INCOMPLETE: usize = 1024;

/// Flags of a frame with a header block.
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

/// Length of the priority in a frame of headers.
const PRIORITY_BYTES: usize = 5;

/// Decides what becomes of the frames.
pub trait Gate {
    /// Whether to refuse the call with these headers.
    fn refuses(&mut self, call: &Head) -> bool;

    /// Notes a call that HTTP/2 sees.
    fn passed(&mut self);

    /// Notes a reset that HTTP/2 sees.
    fn reset(&mut self, stream: u32);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Dropped,
    /// A frame of headers passes in another form.
    Replaced,
    /// A frame of headers cannot be understood, though the table that it depends on differs from that of HTTP/2.
    Lost,
}

/// Received frames of one connection.
#[derive(Debug, Default)]
pub struct ReceivedFrames {
    /// The beginning of a frame whose fate depends on the rest.
    held: BytesMut,
    /// Frames that pass, other than where they were read.
    ready: BytesMut,
    payload: Payload,
    table: HeaderTable,
    /// Whether the table has entries that HTTP/2 has not seen, of a refused call or of a block that HTTP/2 would refuse.
    pub has_own_table: bool,
    /// Headers that depend on no table, as HTTP/2 receives them then.
    replacement: BytesMut,
    /// Whether the connection cannot go on.
    pub is_lost: bool,
    /// The latest stream, and the latest that HTTP/2 has seen.
    latest: u32,
    latest_passed: u32,
    /// Streams of refused calls whose messages are not complete, in their order.
    incomplete: VecDeque<u32>,
}

/// The payload that follows; at first the preface.
#[derive(Debug)]
struct Payload {
    bytes: usize,
    fate: Fate,
}

impl Default for Payload {
    fn default() -> Self {
        Self { bytes: PREFACE_BYTES, fate: Fate::Passed }
    }
}

impl ReceivedFrames {
    /// Appends frames that pass other than where they were read to `buffer`. Returns whether there was any.
    pub fn take_ready(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let (part, _) = self.ready.split_at(self.ready.len().min(buffer.remaining()));
        buffer.put_slice(part);
        let taken = part.len();
        self.ready.advance(taken);
        taken > 0
    }

    /// Number of bytes to be read next with [`Self::complete`]; 0 if they may be read with [`Self::filter`].
    pub fn missing(&self) -> usize {
        match block_frames(&self.held) {
            BlockFrames::Begun { missing } if !self.held.is_empty() => missing,
            _ => 0,
        }
    }

    /// Adds to the frame that is held at most the bytes that it misses.
    pub fn complete(&mut self, bytes: &[u8], gate: &mut impl Gate, refusals: &mut Refusals) {
        self.held.extend_from_slice(bytes);
        let mut frames = self.held.split();
        while !frames.is_empty() {
            let Some((length, fate)) = self.next(&frames, gate, refusals) else { break };
            self.move_to_ready(&frames.split_to(length), fate);
        }
        self.held = frames;
    }

    fn move_to_ready(&mut self, bytes: &[u8], fate: Fate) {
        match fate {
            Fate::Passed => self.ready.extend_from_slice(bytes),
            Fate::Replaced => self.ready.unsplit(self.replacement.split()),
            Fate::Dropped => {}
            Fate::Lost => self.is_lost = true,
        }
    }

    /// Moves the bytes that pass to the front of `bytes`, and returns their number. Others that pass are ready afterwards.
    pub fn filter(&mut self, bytes: &mut [u8], gate: &mut impl Gate, refusals: &mut Refusals) -> usize {
        let (mut at, mut passed) = (0_usize, 0_usize);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Some((length, fate)) = self.next(rest, gate, refusals) else {
                self.held.extend_from_slice(rest);
                break;
            };
            let end = at + length;
            if fate == Fate::Passed && self.ready.is_empty() {
                if passed < at {
                    bytes.copy_within(at..end, passed);
                }
                passed += length;
            } else if fate != Fate::Dropped {
                self.move_to_ready(rest.get(..length).unwrap_or_default(), fate);
            }
            at = end;
        }
        passed
    }

    /// Returns the number of bytes whose fate is known, and their fate.
    fn next(&mut self, bytes: &[u8], gate: &mut impl Gate, refusals: &mut Refusals) -> Option<(usize, Fate)> {
        if self.payload.bytes > 0 {
            let length = self.payload.bytes.min(bytes.len());
            self.payload.bytes -= length;
            return Some((length, self.payload.fate));
        }
        let (header, payload) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let header = FrameHeader::parse(*header);
        if header.kind == HEADERS {
            match block_frames(bytes) {
                BlockFrames::Begun { .. } => return None,
                BlockFrames::Whole { length } => {
                    let payloads = payload.get(..length - HEADER_BYTES).unwrap_or_default();
                    return Some((length, self.headers(header, payloads, gate, refusals)));
                }
                BlockFrames::TooLong => {}
            }
        }
        let fate = self.fate(header, gate, refusals);
        self.payload = Payload { bytes: header.length, fate };
        Some((HEADER_BYTES, fate))
    }

    /// Decides on the frames of a header block, of which the first has this header.
    fn headers(
        &mut self,
        header: FrameHeader,
        payloads: &[u8],
        gate: &mut impl Gate,
        refusals: &mut Refusals,
    ) -> Fate {
        let head = self.read_block(header, payloads);
        let passed = match head {
            _ if !self.has_own_table => Fate::Passed,
            Some(_) => Fate::Replaced,
            None => Fate::Lost,
        };
        if header.stream <= self.latest {
            // Headers after a message.
            let fate = self.body(header, refusals);
            if fate == Fate::Passed {
                return passed;
            }
            self.has_own_table |= head.is_none_or(|head| head.changes_table);
            return fate;
        }
        self.latest = header.stream;
        let is_refused =
            self.incomplete.len() < MAX_INCOMPLETE && head.is_some_and(|head| gate.refuses(&head));
        if !is_refused {
            self.latest_passed = header.stream;
            gate.passed();
            return passed;
        }
        self.has_own_table |= head.is_some_and(|head| head.changes_table);
        if header.flags & END_STREAM > 0 {
            refusals.refuse(header.stream);
        } else {
            self.incomplete.push_back(header.stream);
        }
        Fate::Dropped
    }

    /// Reads a header block, and copies it for HTTP/2 if that has another table, or would reset the call.
    fn read_block(&mut self, header: FrameHeader, payloads: &[u8]) -> Option<Head> {
        let block = joined_block(header, payloads);
        if !self.has_own_table {
            let head = self.table.read(&block, None);
            if !head.is_some_and(|head| head.is_unfit) {
                return head;
            }
            self.table.undo();
            self.has_own_table = true;
        }
        self.replacement.clear();
        self.replacement.put_bytes(0, HEADER_BYTES);
        let head = self.table.read(&block, Some(&mut self.replacement))?;
        if self.replacement.len() > MAX_COPY_BYTES {
            self.replacement.truncate(HEADER_BYTES);
            self.replacement.put_u8(NO_CALL);
        }
        let length = self.replacement.len() - HEADER_BYTES;
        let flags = header.flags & END_STREAM | END_HEADERS;
        if let Some(mut start) = self.replacement.get_mut(..HEADER_BYTES) {
            put_header(&mut start, length, HEADERS, flags, header.stream);
        }
        Some(head)
    }

    /// Decides on a frame that contains, or ends, the message of a call.
    fn body(&mut self, header: FrameHeader, refusals: &mut Refusals) -> Fate {
        let Ok(at) = self.incomplete.binary_search(&header.stream) else { return Fate::Passed };
        if header.flags & END_STREAM > 0 {
            self.incomplete.remove(at);
            refusals.refuse(header.stream);
        }
        Fate::Dropped
    }

    /// Decides on a frame other than one of headers.
    fn fate(&mut self, header: FrameHeader, gate: &mut impl Gate, refusals: &mut Refusals) -> Fate {
        match header.kind {
            DATA => {
                let fate = self.body(header, refusals);
                if fate == Fate::Dropped {
                    refusals.dropped(header.length);
                }
                fate
            }
            RST_STREAM => {
                if let Ok(at) = self.incomplete.binary_search(&header.stream) {
                    self.incomplete.remove(at);
                    return Fate::Dropped;
                }
                let fate = self.fate_of_stream(header.stream);
                if fate == Fate::Passed {
                    gate.reset(header.stream);
                }
                fate
            }
            WINDOW_UPDATE | PRIORITY => self.fate_of_stream(header.stream),
            HEADERS => {
                // Too long.
                self.table.skip();
                if self.has_own_table { Fate::Lost } else { Fate::Passed }
            }
            _ => Fate::Passed,
        }
    }

    /// Decides on a frame about a stream. For HTTP/2, frames on a stream that it has not seen yet are errors; those of
    /// earlier ones it ignores.
    const fn fate_of_stream(&self, stream: u32) -> Fate {
        if stream > self.latest_passed && stream <= self.latest { Fate::Dropped } else { Fate::Passed }
    }
}

/// Frames of a header block at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockFrames {
    /// The current frame lacks this number of bytes.
    Begun {
        missing: usize,
    },
    /// Their length in all.
    Whole {
        length: usize,
    },
    TooLong,
}

fn block_frames(bytes: &[u8]) -> BlockFrames {
    let mut rest = bytes;
    for kind in [HEADERS].into_iter().chain([CONTINUATION; MAX_CONTINUATIONS]) {
        let Some((header, payload)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return BlockFrames::Begun { missing: HEADER_BYTES - rest.len() };
        };
        let header = FrameHeader::parse(*header);
        let end = bytes.len() - payload.len() + header.length;
        if header.kind != kind || end > MAX_BLOCK_BYTES {
            return BlockFrames::TooLong;
        }
        let Some(after) = payload.get(header.length..) else {
            return BlockFrames::Begun { missing: header.length - payload.len() };
        };
        if header.flags & END_HEADERS > 0 {
            return BlockFrames::Whole { length: bytes.len() - after.len() };
        }
        rest = after;
    }
    BlockFrames::TooLong
}

/// Header block in the payloads of its frames, between which are the headers of all but the first.
fn joined_block(header: FrameHeader, payloads: &[u8]) -> Cow<'_, [u8]> {
    let (mut first, mut rest) = payloads.split_at(header.length.min(payloads.len()));
    let mut padding = 0;
    if header.flags & PADDED > 0
        && let Some((length, after)) = first.split_first()
    {
        (padding, first) = (usize::from(*length), after);
    }
    if header.flags & WITH_PRIORITY > 0 {
        first = first.get(PRIORITY_BYTES..).unwrap_or_default();
    }
    let mut block = Cow::Borrowed(first.get(..first.len().saturating_sub(padding)).unwrap_or_default());
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let (payload, after) = after.split_at(FrameHeader::parse(*header).length.min(after.len()));
        block.to_mut().extend_from_slice(payload);
        rest = after;
    }
    block
}
