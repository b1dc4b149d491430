//! Bounds on the times at which the bytes of a connection arrived.

use std::collections::VecDeque;

/// Marks kept of a connection that does not catch up with what it receives.
const MAX_MARKS: usize = 64;

/// Time of a poll that bytes did not cause.
pub(super) const NEVER: u64 = u64::MAX;

/// Bounds on the times at which bytes arrived.
#[derive(Debug)]
pub(super) struct Marks {
    /// Bytes read so far.
    read: u64,
    /// Totals of bytes received by a time, oldest first: later bytes arrived later. The first total was read.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    total: u64,
    pub(super) nanos: u64,
    /// When the poll began that later bytes caused, or [`NEVER`] if earlier bytes were unread.
    pub(super) woken_at: u64,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self { read: 0, marks: VecDeque::from([Mark { total: 0, nanos: 0, woken_at: NEVER }]) }
    }

    /// Counts bytes that were read.
    pub(super) fn read(&mut self, bytes: usize) {
        self.read = self.read.saturating_add(bytes as u64);
    }

    /// Returns the mark that the next bytes follow, in a poll that begins at `nanos`.
    pub(super) fn next(&mut self, nanos: u64) -> Mark {
        while self.marks.get(1).is_some_and(|mark| mark.total <= self.read) {
            self.marks.pop_front();
        }
        let is_only = self.marks.len() == 1;
        let Some(mark) = self.marks.front_mut() else { return Mark { total: 0, nanos, woken_at: nanos } };
        if is_only && mark.total == self.read {
            mark.woken_at = nanos;
        }
        *mark
    }

    /// Notes that `unread` bytes remain at a time.
    pub(super) fn add(&mut self, unread: u64, nanos: u64) {
        let total = self.read.saturating_add(unread);
        // Of marks with one total, the last is the closest bound.
        while self.marks.back().is_some_and(|mark| mark.total >= total) {
            self.marks.pop_back();
        }
        if self.marks.len() >= MAX_MARKS {
            self.thin_out();
        }
        self.marks.push_back(Mark { total, nanos, woken_at: NEVER });
    }

    /// Removes the mark without which the bounds get least worse.
    fn thin_out(&mut self) {
        let later = self.marks.iter().skip(2);
        let gaps =
            self.marks.iter().zip(later).map(|(before, after)| after.nanos.saturating_sub(before.nanos));
        if let Some((at, _)) = gaps.enumerate().min_by_key(|(_, gap)| *gap) {
            self.marks.remove(at.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_of_a_burst_are_as_old_as_the_poll_that_it_caused() {
        let mut marks = Marks::new();
        marks.add(0, 10);
        // A burst of three polls, long after.
        for (read, unread, nanos) in [(100, 200, 1_000), (200, 100, 1_100), (300, 0, 1_200)] {
            assert_eq!(marks.next(nanos), Mark { total: 0, nanos: 10, woken_at: 1_000 });
            marks.read = read;
            marks.add(unread, nanos + 50);
        }
        assert_eq!(marks.next(9_000), Mark { total: 300, nanos: 1_250, woken_at: 9_000 });
    }

    #[test]
    fn bytes_are_as_old_as_the_mark_that_they_follow() {
        let mut marks = Marks::new();
        marks.add(0, 10);
        let after = |marks: &mut Marks, nanos| {
            let mark = marks.next(nanos);
            (mark.nanos, mark.woken_at)
        };
        assert_eq!(after(&mut marks, 15), (10, 15), "nothing was unread");
        // 100 bytes arrive, of which 40 are read at 20, when 60 are left.
        marks.read = 40;
        marks.add(60, 20);
        assert_eq!(after(&mut marks, 25), (10, 15));
        marks.read = 80;
        marks.add(50, 30);
        assert_eq!(after(&mut marks, 35), (10, 15), "bytes up to 100 arrived before 20");
        marks.read = 101;
        marks.add(29, 40);
        assert_eq!(after(&mut marks, 45), (20, NEVER), "after 20 and before 30");
        marks.read = 130;
        marks.add(0, 50);
        assert_eq!(after(&mut marks, 55), (50, 55));
    }

    #[test]
    fn the_marks_of_a_connection_that_never_catches_up_are_bounded_and_follow_it() {
        let mut marks = Marks::new();
        for poll in 1..10_000_u64 {
            // 1,000 polls behind.
            marks.read = 1_000 * poll.saturating_sub(1_000);
            marks.add(1_000 * poll - marks.read, poll);
            assert!(marks.marks.len() <= MAX_MARKS);
            let (after, arrived) = (marks.next(poll).nanos, poll.saturating_sub(1_000));
            assert!(after <= arrived && arrived - after <= 100, "{arrived} after {after}");
        }
        assert!(marks.marks.iter().zip(marks.marks.iter().skip(1)).all(|(a, b)| a.total < b.total));
    }
}
