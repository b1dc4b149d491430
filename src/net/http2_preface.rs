//! Detection of the HTTP/2 connection preface.

/// Length of the fixed preface string.
const PREFACE_BYTES: usize = 24;

/// Length of a frame header.
const FRAME_HEADER_BYTES: usize = 9;

/// Position of the payload length in the first frame's header.
const FRAME_LENGTH_RANGE: std::ops::Range<usize> = PREFACE_BYTES..27;

/// Progress of a client through the preface and its first frame.
#[derive(Debug, Default)]
pub(super) struct PrefaceReader {
    bytes: usize,
    /// Payload length of the first frame.
    frame_length: usize,
}

impl PrefaceReader {
    /// Adds received bytes, and returns whether the preface is complete. Validating it is left to the HTTP/2 server.
    pub(super) fn is_complete_with(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if FRAME_LENGTH_RANGE.contains(&self.bytes) {
                self.frame_length = self.frame_length << 8 | usize::from(*byte);
            }
            self.bytes = self.bytes.saturating_add(1);
        }
        self.bytes >= PREFACE_BYTES.saturating_add(FRAME_HEADER_BYTES).saturating_add(self.frame_length)
    }
}
