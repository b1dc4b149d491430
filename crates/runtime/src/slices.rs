//! Background work in slices with pauses.
//!
//! A worker that wakes up while another thread computes may wait for the rest of a time slice of the scheduler, some
//! milliseconds. So a background thread computes for a fraction of a millisecond at a time.

use std::{thread, time::Duration};

/// Least number of items in a slice: about 0.1 ms where an item takes some microseconds.
const MIN_ITEMS: usize = 32;

/// Time between two slices.
const PAUSE_TIME: Duration = Duration::from_millis(1);

/// Number of items in each slice of `count` items, which are to have at most `max_slices` slices.
pub fn items_per_slice(count: usize, max_slices: usize) -> usize {
    count.div_ceil(max_slices.max(1)).max(MIN_ITEMS)
}

/// Pauses between two slices; blocks the thread.
pub fn pause() {
    thread::sleep(PAUSE_TIME);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_short_unless_there_would_be_too_many() {
        for count in [0, 1, MIN_ITEMS * 10] {
            assert_eq!(items_per_slice(count, 10), MIN_ITEMS);
        }
        for count in [1_000, 1_001, 65_536] {
            let items = items_per_slice(count, 10);
            assert!(count.div_ceil(items) <= 10 && items * 9 < count, "{items} of {count}");
        }
        assert_eq!(items_per_slice(100, 0), 100);
    }
}
