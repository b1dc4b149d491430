//! Reads values from arbitrary bytes, for fuzzing: any input is valid.

use std::borrow::Cow;

/// Reads values from bytes; zeros follow the last one.
#[derive(Debug)]
pub struct ByteReader<'a>(pub &'a [u8]);

impl<'a> ByteReader<'a> {
    pub fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 0
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        for (to, from) in array.iter_mut().zip(self.bytes(N)) {
            *to = *from;
        }
        array
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// The next `length` bytes, or the rest if there are fewer.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A text whose length is the next byte; for the largest one, the following byte repeated 10,000 times.
    pub fn text(&mut self) -> Cow<'a, str> {
        match self.byte() {
            u8::MAX => Cow::Owned(String::from_utf8_lossy(self.bytes(1)).repeat(10_000)),
            length => String::from_utf8_lossy(self.bytes(usize::from(length))),
        }
    }

    /// The choice that the next byte selects.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let at = usize::from(self.byte()).checked_rem(choices.len())?;
        choices.get(at).copied()
    }
}
