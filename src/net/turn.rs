//! Turns of a worker's connections, and the age of the bytes that they read.
//!
//! HTTP/2 reads all that a socket holds before it accepts the first call. A client with a megabyte of calls on their way
//! would occupy its worker for tens of milliseconds, and the calls that it has reset meanwhile would count as an attack.
//! So a connection reads a few kilobytes, and then waits until the calls in them and all other connections were served.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes after which a connection reads no more in a turn, about a hundred calls. The last read may exceed it.
const TURN_BYTES: usize = 8 * 1024;

/// Marks kept of a connection that does not catch up with what it receives.
const MAX_MARKS: usize = 64;

/// Connection whose receive buffer can be measured.
pub(crate) trait Unread {
    /// Number of bytes that were received and not read; 0 if unknown.
    fn unread_bytes(&self) -> u64;
}

/// Turns of one connection. Clones are handles on the same connection.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Number of the turn.
    number: AtomicUsize,
    opened_at: Instant,
    /// Nanoseconds after `opened_at` after which the first bytes of the turn arrived.
    arrived_after: AtomicU64,
    /// Whether all earlier bytes had been read by then, so that their arrival began the turn.
    was_drained: AtomicBool,
    /// Number of the latest turn that read a reset.
    reset_in: AtomicUsize,
}

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Shared {
            number: AtomicUsize::new(0),
            opened_at: Instant::now(),
            arrived_after: AtomicU64::new(0),
            was_drained: AtomicBool::new(true),
            reset_in: AtomicUsize::new(0),
        }))
    }
}

impl Turns {
    /// Polls the work on the connection; each poll is a turn.
    pub(crate) async fn limit<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.0.number.fetch_add(1, Ordering::Relaxed);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Upper bound on the time that the oldest bytes of this turn had waited by `now`. `wakeup_delay` bounds the time from
    /// the arrival of bytes to the turn of a connection that had none.
    pub(crate) fn age(&self, now: Instant, wakeup_delay: Duration) -> Duration {
        let arrived_after = Duration::from_nanos(self.0.arrived_after.load(Ordering::Relaxed));
        let age = now.saturating_duration_since(self.0.opened_at).saturating_sub(arrived_after);
        if self.0.was_drained.load(Ordering::Relaxed) { age.min(wakeup_delay) } else { age }
    }

    /// Notes that this turn reads the reset of a call.
    pub(crate) fn reset(&self) {
        self.0.reset_in.store(self.number(), Ordering::Relaxed);
    }

    /// Whether this turn has read the reset of a call.
    pub(crate) fn has_reset(&self) -> bool {
        self.0.reset_in.load(Ordering::Relaxed) == self.number()
    }

    /// Number of this turn, from 1.
    fn number(&self) -> usize {
        self.0.number.load(Ordering::Relaxed)
    }

    /// Nanoseconds since the connection was opened.
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.opened_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Connection that reads a bounded number of bytes in a turn.
#[derive(Debug)]
pub(crate) struct TurnReader<I> {
    io: I,
    turns: Turns,
    /// Number of the turn to which the next two fields belong.
    turn: usize,
    /// Bytes that may still be read.
    left: usize,
    /// Whether the end of the turn was marked.
    is_marked: bool,
    marks: Marks,
}

/// Bounds on the times at which bytes arrived.
#[derive(Debug)]
struct Marks {
    /// Bytes read so far.
    read: u64,
    /// Totals of bytes received by a time, oldest first: later bytes arrived later. The first total was read.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    total: u64,
    nanos: u64,
}

impl Marks {
    fn new() -> Self {
        Self { read: 0, marks: VecDeque::from([Mark { total: 0, nanos: 0 }]) }
    }

    /// Returns the time after which the next bytes arrived, and whether nothing was unread at that time.
    fn next_after(&mut self) -> (u64, bool) {
        while self.marks.get(1).is_some_and(|mark| mark.total <= self.read) {
            self.marks.pop_front();
        }
        let Some(mark) = self.marks.front() else { return (0, true) };
        (mark.nanos, mark.total == self.read && self.marks.len() == 1)
    }

    /// Notes that `unread` bytes remain at a time.
    fn add(&mut self, unread: u64, nanos: u64) {
        let total = self.read.saturating_add(unread);
        // Of marks with one total, the last is the closest bound.
        while self.marks.back().is_some_and(|mark| mark.total >= total) {
            self.marks.pop_back();
        }
        if self.marks.len() >= MAX_MARKS {
            self.marks.remove(1);
        }
        self.marks.push_back(Mark { total, nanos });
    }
}

impl<I: Unread> TurnReader<I> {
    pub(crate) fn new(io: I, turns: Turns) -> Self {
        Self { io, turns, turn: 0, left: TURN_BYTES, is_marked: false, marks: Marks::new() }
    }

    /// Begins the turn `turn`.
    fn begin(&mut self, turn: usize) {
        let (nanos, was_drained) = self.marks.next_after();
        self.turns.0.arrived_after.store(nanos, Ordering::Relaxed);
        self.turns.0.was_drained.store(was_drained, Ordering::Relaxed);
        (self.turn, self.left, self.is_marked) = (turn, TURN_BYTES, false);
    }

    /// Marks the end of a turn after which `unread` bytes are left.
    fn mark(&mut self, unread: u64) {
        self.is_marked = true;
        self.marks.add(unread, self.turns.nanos());
    }
}

impl<I: AsyncRead + Unread + Unpin> AsyncRead for TurnReader<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let turn = this.turns.number();
        if this.turn != turn {
            this.begin(turn);
        }
        if this.left == 0 {
            if !this.is_marked {
                let unread = this.io.unread_bytes();
                this.mark(unread);
                // The next turn comes after everything that is ready now.
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(cx, buffer);
        if polled.is_pending() && !this.is_marked {
            this.mark(0);
        }
        ready!(polled)?;
        let bytes = buffer.filled().len().saturating_sub(before);
        this.left = this.left.saturating_sub(bytes);
        this.marks.read = this.marks.read.saturating_add(bytes as u64);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for TurnReader<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        task::LocalSet,
    };

    use super::*;

    const CAPACITY: usize = 64 * TURN_BYTES;

    impl Unread for DuplexStream {
        fn unread_bytes(&self) -> u64 {
            0
        }
    }

    #[tokio::test]
    async fn a_connection_with_much_to_read_lets_others_go_between() {
        let (near, mut far) = duplex(CAPACITY);
        far.write_all(&vec![7; 10 * TURN_BYTES]).await.expect("room");
        drop(far);
        let others = Rc::new(Cell::new(0));
        let work = async {
            let turns = Turns::default();
            let mut io = TurnReader::new(near, turns.clone());
            let reading = async {
                let (mut read, mut buffer) = (0, vec![0; TURN_BYTES / 2]);
                loop {
                    match io.read(&mut buffer).await.expect("reads") {
                        0 => return read,
                        bytes => read += bytes,
                    }
                }
            };
            turns.limit(reading).await
        };
        let local = LocalSet::new();
        let counted = Rc::clone(&others);
        local.spawn_local(async move {
            poll_fn(|cx| {
                counted.set(counted.get() + 1);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })
            .await;
        });
        let read = local.run_until(async { tokio::task::spawn_local(work).await });
        assert_eq!(read.await.expect("no panic"), 10 * TURN_BYTES);
        assert!(others.get() >= 5, "{} polls of another task", others.get());
    }

    #[test]
    fn bytes_are_as_old_as_the_mark_that_they_follow() {
        let mut marks = Marks::new();
        marks.add(0, 10);
        assert_eq!(marks.next_after(), (10, true), "nothing was read");
        // 100 bytes arrive, of which 40 are read at 20, when 60 are left.
        marks.read = 40;
        marks.add(60, 20);
        assert_eq!(marks.next_after(), (10, false));
        marks.read = 80;
        marks.add(50, 30);
        assert_eq!(marks.next_after(), (10, false), "bytes up to 100 arrived before 20");
        marks.read = 101;
        marks.add(29, 40);
        assert_eq!(marks.next_after(), (20, false), "after 20 and before 30");
        marks.read = 130;
        marks.add(0, 50);
        assert_eq!(marks.next_after(), (50, true));
    }

    #[test]
    fn the_marks_of_a_connection_that_never_catches_up_are_bounded() {
        let mut marks = Marks::new();
        for turn in 0..1_000 {
            marks.read += 1;
            marks.add(10_000 + 5 * turn, turn);
            assert!(marks.marks.len() <= MAX_MARKS);
            assert_eq!(marks.next_after(), (0, false));
        }
        assert!(marks.marks.iter().zip(marks.marks.iter().skip(1)).all(|(a, b)| a.total < b.total));
    }

    #[test]
    fn the_age_of_what_woke_a_connection_is_at_most_the_delay_of_its_wakeup() {
        let turns = Turns::default();
        let later = turns.0.opened_at + Duration::from_secs(1);
        let delay = Duration::from_millis(3);
        assert_eq!(turns.age(later, delay), delay);
        assert_eq!(turns.age(turns.0.opened_at, delay), Duration::ZERO);
        turns.0.was_drained.store(false, Ordering::Relaxed);
        assert_eq!(turns.age(later, delay), Duration::from_secs(1));
    }
}
