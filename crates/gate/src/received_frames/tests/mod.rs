//! Frames with calls that are refused, whole and cut.

mod decoded;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use tollgate_fixtures::frame;

use crate::SHOULD_RATE_LIMIT_PATH;
use crate::frames::{FrameScanner, Piece};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Refuses the calls on some streams, without a look at their headers.
#[derive(Default)]
struct Refusing {
    calls: usize,
    /// Numbers of the calls that are refused.
    refused: BTreeSet<usize>,
    resets: Vec<u32>,
}

impl Gate for Refusing {
    fn refuses(&mut self, _: &Head) -> bool {
        self.calls += 1;
        self.refused.contains(&(self.calls - 1))
    }

    fn passed(&mut self) {}

    fn reset(&mut self, stream: u32) {
        self.resets.push(stream);
    }
}

/// Headers that change no table.
fn headers(stream: u32) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(SHOULD_RATE_LIMIT_PATH.len()).expect("short")];
    block.extend_from_slice(SHOULD_RATE_LIMIT_PATH.as_bytes());
    frame(HEADERS, END_HEADERS, stream, &block)
}

fn data(stream: u32, length: usize) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, &vec![7; length])
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

fn window(stream: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes())
}

/// Returns the bytes that pass of a connection that received `chunks` after the preface, and the frames that are sent in
/// response, as pairs of kind and stream.
fn filtered(chunks: &[&[u8]], gate: &mut Refusing, room: usize) -> (Vec<u8>, Vec<(u8, u32)>) {
    let (mut received, mut refusals, mut passed) =
        (ReceivedFrames::default(), Refusals::default(), Vec::new());
    let mut preface = PREFACE.to_vec();
    assert_eq!(received.filter(&mut preface, gate, &mut refusals), PREFACE.len());
    for chunk in chunks {
        let mut chunk = chunk.to_vec();
        while !chunk.is_empty() {
            let missing = received.missing();
            if missing > 0 {
                let part: Vec<u8> = chunk.drain(..missing.min(chunk.len())).collect();
                received.complete(&part, gate, &mut refusals);
            } else {
                let mut part: Vec<u8> = std::mem::take(&mut chunk);
                let length = received.filter(&mut part, gate, &mut refusals);
                passed.extend_from_slice(&part[..length]);
            }
            let mut buffer = vec![0; room];
            loop {
                let mut buffer = ReadBuf::new(&mut buffer);
                if !received.take_ready(&mut buffer) {
                    break;
                }
                passed.extend_from_slice(buffer.filled());
            }
        }
    }
    let (mut scanner, mut sent) = (FrameScanner::default(), Vec::new());
    scanner.scan(refusals.frames(), |piece| {
        if let Piece::Header(header) = piece {
            sent.push((header.kind, header.stream));
        }
    });
    (passed, sent)
}

fn refusing(calls: &[usize]) -> Refusing {
    Refusing { refused: calls.iter().copied().collect(), ..Refusing::default() }
}

/// Asserts what passes of frames, and what is sent in response, whether they arrive as a whole or byte by byte.
#[track_caller]
fn assert_filtered(all: &[u8], refused: &[usize], passed: &[u8], sent: &[(u8, u32)]) {
    let bytes: Vec<&[u8]> = all.chunks(1).collect();
    for (chunks, room) in [(&[all][..], 64), (&bytes, 64), (&bytes, 1)] {
        let found = filtered(chunks, &mut refusing(refused), room);
        assert_eq!(found, (passed.to_vec(), sent.to_vec()), "{} chunks, {room}", chunks.len());
    }
}

#[test]
fn refused_calls_are_dropped_and_answered_once_their_messages_are_complete() {
    let part = frame(DATA, 0, 1, b"part");
    let all = [headers(1), headers(3), headers(5), part, data(3, 9), data(5, 2), data(1, 0)].concat();
    assert_filtered(&all, &[0, 2], &[headers(3), data(3, 9)].concat(), &[(HEADERS, 5), (HEADERS, 1)]);
}

#[test]
fn a_refused_call_without_a_message_is_answered_at_once() {
    let mut alone = headers(1);
    alone[4] |= END_STREAM;
    assert_filtered(&alone, &[0], &[], &[(HEADERS, 1)]);
}

#[test]
fn frames_on_streams_that_were_never_passed_do_not_pass() {
    let mut gate = refusing(&[0, 1, 3]);
    let all = [
        // Refused, and reset before its message is complete.
        [headers(1), window(1), reset(1), reset(1)].concat(),
        // Refused and answered; the window and the reset come late.
        [headers(3), data(3, 1), window(3), reset(3), frame(PRIORITY, 0, 3, &[0; 5])].concat(),
    ]
    .concat();
    let others = [window(0), headers(5), window(5), data(5, 1), reset(5)].concat();
    // Earlier than what passed: ignored by HTTP/2.
    let late = [reset(3), window(1)].concat();
    let (passed, sent) = filtered(&[&all, &others, &late], &mut gate, 64);
    assert_eq!(passed, [others, late].concat());
    assert_eq!(sent, [(HEADERS, 3)]);
    assert_eq!(gate.resets, [5, 3]);
}

#[test]
fn blocks_that_depend_on_one_that_was_dropped_are_replaced() {
    // The path becomes an entry of the table in the first call, and a field `a: b` in the second.
    let mut first = headers(1);
    first[11] = 0x44;
    let second = frame(HEADERS, END_HEADERS, 3, b"\x83\x87\xbe\x40\x01a\x01b");
    let third = frame(HEADERS, END_HEADERS | WITH_PRIORITY, 5, b"\0\0\0\0\0\x83\x87\xbf\xbe");
    let all =
        [first.clone(), data(1, 1), second, data(3, 1), third, data(5, 1), headers(7), data(7, 1)].concat();
    let mut block = headers(5)[9..].to_vec();
    block.extend_from_slice(b"\x00\x01a\x01b");
    let replaced = frame(HEADERS, END_HEADERS, 5, &block);
    let expected = [first, data(1, 1), replaced, data(5, 1), headers(7), data(7, 1)].concat();
    assert_filtered(&all, &[1], &expected, &[(HEADERS, 3)]);
}

#[test]
fn calls_pass_after_a_block_that_was_not_read() {
    // In more frames than are read.
    let mut begun = headers(1);
    begun[4] = 0;
    let more = frame(CONTINUATION, 0, 1, b"").repeat(MAX_CONTINUATIONS);
    let all =
        [begun.clone(), more, frame(CONTINUATION, END_HEADERS, 1, b""), headers(3), data(3, 1)].concat();
    assert_filtered(&all, &[0, 1], &all, &[]);
    // Beyond the size of a block, in two frames.
    let half = vec![0x83; MAX_BLOCK_BYTES / 2];
    let (first, second) = (frame(HEADERS, 0, 1, &half), frame(CONTINUATION, END_HEADERS, 1, &half));
    let all = [first, second, headers(3)].concat();
    assert_filtered(&all, &[0, 1], &all, &[]);
    // In one frame.
    let all = [frame(HEADERS, END_HEADERS, 1, &vec![0x83; MAX_BLOCK_BYTES - HEADER_BYTES + 1]), headers(3)]
        .concat();
    assert_filtered(&all, &[0, 1], &all, &[]);
}

#[test]
fn a_block_that_http2_would_refuse_is_replaced_with_all_later_ones() {
    // An authority that is no authority becomes an entry of the table, in three frames.
    let istio = b"\x41\x06a|1||b\x40\x01c\x01d";
    let whole = [&headers(1)[9..], &istio[..]].concat();
    let (start, rest) = whole.split_at(70);
    let first = [
        frame(HEADERS, PADDED, 1, &[&[2], start, &[0, 0]].concat()),
        frame(CONTINUATION, 0, 1, b""),
        frame(CONTINUATION, END_HEADERS, 1, rest),
    ];
    let second = frame(HEADERS, END_HEADERS, 3, &[&headers(3)[9..], b"\xbf\xbe"].concat());
    // A new size of the table, with nothing in it.
    let third = frame(HEADERS, END_HEADERS, 5, &[&[0x20], &headers(5)[9..]].concat());
    let all = [first.concat(), data(1, 1), second, data(3, 1), third].concat();
    let replaced =
        |stream, more: &[u8]| frame(HEADERS, END_HEADERS, stream, &[&headers(1)[9..], more].concat());
    let more = b"\x00\x01c\x01d";
    let expected = [replaced(1, more), data(1, 1), replaced(3, more), data(3, 1), replaced(5, b"")].concat();
    assert_filtered(&all, &[], &expected, &[]);
}

#[test]
fn a_block_that_grows_without_the_table_is_replaced_by_one_that_is_no_call() {
    // An authority that is no authority, and a field of 2,000 bytes, many times.
    let long = [&b"\x41\x03a|b\x40\x01c\x7f\xd1\x0e"[..], &[b'd'; 2_000]].concat();
    let first = frame(HEADERS, END_HEADERS, 1, &[&headers(1)[9..], &long].concat());
    let second = frame(HEADERS, END_HEADERS, 3, &[&headers(3)[9..], &[0xbe; 16_000]].concat());
    let third = frame(HEADERS, END_HEADERS, 5, &[&headers(5)[9..], b"\xbf"].concat());
    let (passed, _) = filtered(&[&first, &second, &third], &mut refusing(&[]), 64);
    let expected = [frame(HEADERS, END_HEADERS, 3, &[NO_CALL]), headers(5)].concat();
    assert!(passed.ends_with(&expected), "{} bytes", passed.len());
    assert!(passed.len() < 2_300, "{} bytes", passed.len());
}

#[test]
fn a_connection_ends_with_a_block_that_cannot_be_replaced() {
    let mut changing = headers(1);
    changing[11] = 0x44;
    let (mut received, mut refusals, mut gate) =
        (ReceivedFrames::default(), Refusals::default(), refusing(&[0]));
    let mut bytes = [PREFACE.to_vec(), changing, headers(3)].concat();
    received.filter(&mut bytes, &mut gate, &mut refusals);
    assert!(!received.is_lost);
    let mut malformed = frame(HEADERS, END_HEADERS, 5, b"\xff\xff\xff\xff");
    received.filter(&mut malformed, &mut gate, &mut refusals);
    assert!(received.is_lost);
}

#[test]
fn trailers_padding_and_priorities_are_understood() {
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x00, 1, b'a', 1, b'b']);
    assert_filtered(&[headers(1), frame(DATA, 0, 1, b"a"), trailers].concat(), &[0], &[], &[(HEADERS, 1)]);
    // A block within a priority of five bytes and a padding of three, which would not be a block.
    let block = [&[3][..], &[0xff; 5], &[0x83], &[0xff; 3]].concat();
    let padded = frame(HEADERS, END_HEADERS | END_STREAM | PADDED | WITH_PRIORITY, 1, &block);
    assert_filtered(&padded, &[0], &[], &[(HEADERS, 1)]);
}

#[test]
fn dropped_data_opens_the_window_of_the_connection_again() {
    let length = MAX_BLOCK_BYTES / 2;
    let all: Vec<u8> =
        (0..4).flat_map(|call| [headers(2 * call + 1), data(2 * call + 1, length)].concat()).collect();
    let sent = [(HEADERS, 1), (HEADERS, 5), (WINDOW_UPDATE, 0), (HEADERS, 7)];
    assert_filtered(&all, &[0, 2, 3], &[headers(3), data(3, length)].concat(), &sent);
}

#[test]
fn calls_pass_while_too_many_refused_ones_are_incomplete() {
    let count = u32::try_from(MAX_INCOMPLETE).expect("few");
    let all: Vec<u8> = (0..count + 2).flat_map(|call| headers(2 * call + 1)).collect();
    let everything: Vec<usize> = (0..MAX_INCOMPLETE + 2).collect();
    let passed = [headers(2 * count + 1), headers(2 * count + 3)].concat();
    assert_filtered(&all, &everything, &passed, &[]);
}

/// A frame on one of a few streams; calls begin in order.
#[derive(Clone, Debug)]
enum Sent {
    Call(bool),
    Data(usize, usize),
    Reset(usize),
    Window(usize),
    Ping,
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        4 => any::<bool>().prop_map(Sent::Call),
        4 => (0..4_usize, 0..40_usize).prop_map(|(back, length)| Sent::Data(back, length)),
        1 => (0..4_usize).prop_map(Sent::Reset),
        1 => (0..4_usize).prop_map(Sent::Window),
        1 => Just(Sent::Ping),
    ]
}

fn bytes_of(frames: &[Sent]) -> Vec<u8> {
    let mut calls = 0_u32;
    let mut open = BTreeSet::new();
    let mut bytes = Vec::new();
    for one in frames {
        let stream = |back: usize| 2 * calls.saturating_sub(u32::try_from(back).expect("few")) + 1;
        match *one {
            Sent::Call(is_new) => {
                calls += 1;
                open.insert(2 * calls + 1);
                let mut headers = headers(2 * calls + 1);
                // The path becomes an entry of the table.
                headers[11] = if is_new { 0x44 } else { 0x04 };
                bytes.extend(headers);
            }
            Sent::Data(back, length) if open.remove(&stream(back)) => {
                bytes.extend(data(stream(back), length));
            }
            Sent::Reset(back) if calls > 0 => {
                open.remove(&stream(back));
                bytes.extend(reset(stream(back)));
            }
            Sent::Window(back) if calls > 0 => bytes.extend(window(stream(back))),
            _ => bytes.extend(frame(6, 0, 0, &[1; 8])),
        }
    }
    bytes
}

proptest! {
    #[test]
    fn the_frames_that_pass_do_not_depend_on_how_the_bytes_are_cut(
        frames in prop::collection::vec(sent(), 0..60),
        refused in prop::collection::btree_set(0..40_usize, 0..40),
        cuts in prop::collection::vec(1..50_usize, 1..20),
        room in 1..40_usize,
    ) {
        let bytes = bytes_of(&frames);
        let gate = || Refusing { refused: refused.clone(), ..Refusing::default() };
        let whole = filtered(&[&bytes], &mut gate(), 64);
        let (mut chunks, mut rest, mut cut) = (Vec::new(), &bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (chunk, next) = rest.split_at((*cut.next().expect("a cycle")).min(rest.len()));
            chunks.push(chunk);
            rest = next;
        }
        let in_parts = filtered(&chunks, &mut gate(), room);
        prop_assert_eq!(&whole, &in_parts);
        if refused.is_empty() {
            prop_assert_eq!(whole, (bytes, vec![]));
        }
    }

    #[test]
    fn any_bytes_pass_unchanged_while_no_call_is_refused(
        frames in prop::collection::vec((0..12_u8, any::<u8>(), 0..8_u32, prop::collection::vec(any::<u8>(), 0..30)), 0..20),
        rest in prop::collection::vec(any::<u8>(), 0..40),
        cut in 1..60_usize,
        refused in prop::collection::btree_set(0..20_usize, 0..20),
    ) {
        let sent = frames.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload));
        let bytes: Vec<u8> = sent.chain(rest).collect();
        let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
        let has_headers = frames.iter().any(|(kind, ..)| *kind == HEADERS);
        let (passed, sent) = filtered(&chunks, &mut Refusing::default(), 64);
        // The beginning of a frame is held. Headers may be such that HTTP/2 would refuse them.
        prop_assert!(has_headers || bytes.starts_with(&passed));
        prop_assert_eq!(sent, vec![]);
        filtered(&chunks, &mut Refusing { refused, ..Refusing::default() }, 64);
    }
}
