//! Streams in Redis, read from the latest entry on.

/// Entries that are read at once, which bounds the time that one call takes in Redis.
const ENTRIES_OF_CALL: usize = 250;

/// Position in a stream.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Where the next read starts, as `XREVRANGE` takes it; `None` at the end.
    start: Option<String>,
    /// Number of entries of the last read at most.
    most: usize,
}

impl Cursor {
    /// Before the latest entry, or before the one with this id: at the end if that is no id.
    pub(super) fn before(id: Option<&str>) -> Self {
        let start = match id {
            None => Some("+".to_owned()),
            Some(id) => parts_of_id(id).map(|_| format!("({id}")),
        };
        Self { start, most: 0 }
    }

    /// Where the next read starts, and its number of entries, of which `wanted` are missing; `None` if there is no other.
    pub(super) fn next(&mut self, wanted: usize) -> Option<(Vec<u8>, usize)> {
        let start = self.start.take().filter(|_| wanted > 0)?;
        self.most = wanted.min(ENTRIES_OF_CALL);
        Some((start.into_bytes(), self.most))
    }

    /// Notes the number of entries that were read, and the id of the last one.
    pub(super) fn passed(&mut self, count: usize, last: Option<&str>) {
        self.start = last.filter(|_| count >= self.most).map(|id| format!("({id}"));
    }
}

/// The time and the sequence number of an entry's id.
pub(super) fn parts_of_id(text: &str) -> Option<(u64, u64)> {
    let (time, sequence) = text.split_once('-')?;
    Some((time.parse().ok()?, sequence.parse().ok()?))
}
