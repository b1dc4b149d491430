//! Follows the frames of one direction of an HTTP/2 connection without decoding them (RFC 9113, section 4.1).

/// Length of a frame's header.
pub(super) const HEADER_BYTES: usize = 9;

/// Type of a frame that carries the data of a message.
pub(super) const DATA: u8 = 0;

/// Type of a frame that opens a stream.
pub(super) const HEADERS: u8 = 1;

/// Type of a frame that changes the priority of a stream.
pub(super) const PRIORITY: u8 = 2;

/// Type of a frame that resets a stream.
pub(super) const RST_STREAM: u8 = 3;

/// Type of a frame that opens a window.
pub(super) const WINDOW_UPDATE: u8 = 8;

/// Type of a frame that continues a header block.
pub(super) const CONTINUATION: u8 = 9;

/// Flag of the last frame of a stream.
pub(super) const END_STREAM: u8 = 1;

/// Flag of a header block that no further frame continues.
pub(super) const END_HEADERS: u8 = 4;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Bytes of its payload.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// Part of the scanned bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'b> {
    Header(FrameHeader),
    /// Some of the payload of the frame whose header came last.
    Payload(&'b [u8]),
}

/// Position within the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameScanner {
    /// The beginning of a header, of which the rest follows.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes of the current payload that follow.
    payload_bytes: usize,
}

impl FrameScanner {
    /// Whether what was scanned ends with a frame.
    pub(super) const fn is_between_frames(&self) -> bool {
        self.payload_bytes == 0 && self.header_bytes == 0
    }

    /// Calls `visit` for each header and each part of a payload in the next `bytes`.
    pub(super) fn scan(&mut self, mut bytes: &[u8], mut visit: impl FnMut(Piece<'_>)) {
        while !bytes.is_empty() {
            if self.payload_bytes > 0 {
                let (part, rest) = bytes.split_at(self.payload_bytes.min(bytes.len()));
                self.payload_bytes = self.payload_bytes.saturating_sub(part.len());
                visit(Piece::Payload(part));
                bytes = rest;
                continue;
            }
            if self.header_bytes == 0
                && let Some((header, rest)) = bytes.split_first_chunk()
            {
                self.begin(*header, &mut visit);
                bytes = rest;
                continue;
            }
            let missing = HEADER_BYTES.saturating_sub(self.header_bytes);
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            let end = self.header_bytes.saturating_add(part.len());
            if let Some(filled) = self.header.get_mut(self.header_bytes..end) {
                filled.copy_from_slice(part);
            }
            self.header_bytes = end;
            bytes = rest;
            if end == HEADER_BYTES {
                self.header_bytes = 0;
                self.begin(self.header, &mut visit);
            }
        }
    }

    /// Begins the frame of a header.
    fn begin(&mut self, header: [u8; HEADER_BYTES], visit: &mut impl FnMut(Piece<'_>)) {
        let header = FrameHeader::parse(header);
        self.payload_bytes = header.length;
        visit(Piece::Header(header));
    }
}

impl FrameHeader {
    pub(super) const fn parse([a, b, c, kind, flags, stream @ ..]: [u8; HEADER_BYTES]) -> Self {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // The highest bit is reserved.
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff }
    }
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
}
