//! Values by position, in chunks: growth moves no value and leaves less than a chunk empty.

use std::mem;

/// Values of a chunk: slots of 64 bytes, plus the allocator's alignment overhead, fill a block of 16 KiB.
const CHUNK_VALUES: usize = 255;

/// Values at positions 0 to `len`, without gaps.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// All are full except the last, which is not empty.
    chunks: Vec<Vec<T>>,
    /// An empty chunk, so that values which come and go at a chunk border don't allocate each time.
    spare: Option<Vec<T>>,
    len: usize,
}

#[allow(clippy::arithmetic_side_effects)] // The length is that of the chunks.
impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), spare: None, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK_VALUES)?.get(at % CHUNK_VALUES)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks.get_mut(at / CHUNK_VALUES)?.get_mut(at % CHUNK_VALUES)
    }

    /// Appends a value.
    pub(super) fn push(&mut self, value: T) {
        match self.chunks.last_mut().filter(|chunk| chunk.len() < CHUNK_VALUES) {
            Some(chunk) => chunk.push(value),
            None => {
                let mut chunk = self.spare.take().unwrap_or_else(|| Vec::with_capacity(CHUNK_VALUES));
                chunk.push(value);
                self.chunks.push(chunk);
            }
        }
        self.len += 1;
    }

    /// Removes a value and moves the last one into its position.
    pub(super) fn swap_remove(&mut self, at: usize) -> Option<T> {
        if at >= self.len {
            return None;
        }
        let last = self.pop()?;
        Some(match self.get_mut(at) {
            Some(value) => mem::replace(value, last),
            None => last,
        })
    }

    fn pop(&mut self) -> Option<T> {
        let chunk = self.chunks.last_mut()?;
        let last = chunk.pop()?;
        if chunk.is_empty() {
            self.spare = self.chunks.pop();
        }
        self.len -= 1;
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_fills_the_gap_of_a_removed_one() {
        let mut slab = Slab::new();
        (0..2 * CHUNK_VALUES + 1).for_each(|value| slab.push(value));
        assert_eq!((slab.len(), slab.chunks.len()), (2 * CHUNK_VALUES + 1, 3));
        assert_eq!(slab.swap_remove(7), Some(7));
        assert_eq!((slab.get(7), slab.chunks.len()), (Some(&(2 * CHUNK_VALUES)), 2));
        assert_eq!(slab.swap_remove(2 * CHUNK_VALUES), None);
        assert_eq!(slab.swap_remove(2 * CHUNK_VALUES - 1), Some(2 * CHUNK_VALUES - 1));
        let mut left: Vec<usize> = std::iter::from_fn(|| slab.swap_remove(0)).collect();
        left.sort_unstable();
        let expected: Vec<usize> =
            (0..=2 * CHUNK_VALUES).filter(|value| ![7, 2 * CHUNK_VALUES - 1].contains(value)).collect();
        assert_eq!((left, slab.len(), slab.chunks.len()), (expected, 0, 0));
    }

    #[test]
    fn churn_at_a_chunk_border_reuses_its_memory() {
        let mut slab = Slab::new();
        (0..CHUNK_VALUES).for_each(|value| slab.push(value));
        slab.push(0);
        let place = std::ptr::from_ref(slab.get(CHUNK_VALUES).expect("held"));
        for value in 0..10 {
            slab.swap_remove(CHUNK_VALUES);
            // Another allocation must not get the memory.
            let other = Vec::<usize>::with_capacity(CHUNK_VALUES);
            slab.push(value);
            assert!(std::ptr::eq(place, slab.get(CHUNK_VALUES).expect("held")));
            drop(other);
        }
    }
}
