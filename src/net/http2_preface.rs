//! The first thing that a client of HTTP/2 says.

/// Bytes of the preface, which is always the same.
const PREFACE: usize = 24;

/// Bytes of a frame before its payload.
const FRAME_HEAD: usize = 9;

/// Where the first frame tells the length of its payload.
const LENGTH: std::ops::Range<usize> = PREFACE..27;

/// How much there is of the preface and the first frame.
#[derive(Debug, Default)]
pub(super) struct Opening {
    bytes: usize,
    /// Of the first frame's payload.
    length: usize,
}

impl Opening {
    /// Whether it is all there with these bytes. Whether they are good is for HTTP/2 to say.
    pub(super) fn is_over(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if LENGTH.contains(&self.bytes) {
                self.length = self.length << 8 | usize::from(*byte);
            }
            self.bytes = self.bytes.saturating_add(1);
        }
        self.bytes >= PREFACE.saturating_add(FRAME_HEAD).saturating_add(self.length)
    }
}
