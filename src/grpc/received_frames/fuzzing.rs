//! Fuzz target: any bytes as the frames of a client, some of whose calls are refused.

use tokio::io::ReadBuf;
use tollgate_runtime::byte_reader::ByteReader;

use super::{Gate, HEADER_BYTES, MAX_PAYLOAD_BYTES, PREFACE_BYTES, ReceivedFrames};
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

/// Bytes for HTTP/2, and bytes sent to the client.
type Filtered = (Vec<u8>, Vec<u8>);

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
    if refused == 0 {
        let (passed, answered) = whole.unwrap_or_default();
        assert!(answered.is_empty() && sent.starts_with(&passed), "bytes change though no call is refused");
        assert!(sent.len().saturating_sub(passed.len()) < HEADER_BYTES + MAX_PAYLOAD_BYTES);
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
    (!received.is_lost()).then(|| (passed, refusals.frames().to_vec()))
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
