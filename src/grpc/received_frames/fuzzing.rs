//! Fuzz target: any bytes as the frames of a client, some of whose calls are refused.

use tokio::io::ReadBuf;
use tollgate_runtime::byte_reader::ByteReader;

use super::{Gate, PREFACE_BYTES, ReceivedFrames};
use crate::grpc::{header_block::Head, refusals::Refusals};

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
    let (mut received, mut refusals) = (ReceivedFrames::new(), Refusals::default());
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
    (!received.is_lost()).then_some(Filtered { passed, answers, has_replaced })
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
