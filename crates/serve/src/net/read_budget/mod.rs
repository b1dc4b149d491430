//! Read budgets of a worker's connections, and the age of the bytes that they read.
//!
//! HTTP/2 reads all that a socket holds before it accepts the first call. A client with a megabyte of calls on their way
//! would occupy its worker for tens of milliseconds, and the calls that it has reset meanwhile would count as an attack.
//! So each poll of a connection's task has a budget of a few kilobytes. Then the calls in them and all other connections
//! are served.

#[cfg(test)]
mod tests;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{collections::VecDeque, future::poll_fn, io};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes after which a poll of a connection reads no more, about a hundred calls. The last read may exceed it.
const READ_BUDGET_BYTES: usize = 8 * 1024;

/// Connection whose receive buffer can be measured.
pub trait Unread {
    /// Number of bytes that were received and not read; 0 if unknown.
    fn unread_bytes(&self) -> u64;
}

/// Read budget of one connection, which each poll of its task renews. Clones are handles on the same connection.
#[derive(Clone, Debug)]
pub struct ReadBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Number of the poll.
    number: AtomicUsize,
    opened_at: Instant,
    /// Nanoseconds after `opened_at` at which the poll began.
    began_after: AtomicU64,
    /// Nanoseconds after `opened_at` after which the first bytes of the poll arrived.
    arrived_after: AtomicU64,
    /// Nanoseconds after `opened_at` at which the poll began that these or earlier bytes caused, or [`NEVER`].
    woken_at: AtomicU64,
    /// Number of the latest poll that read a reset.
    reset_in: AtomicUsize,
}

impl Default for ReadBudget {
    fn default() -> Self {
        Self(Arc::new(Shared {
            number: AtomicUsize::new(0),
            opened_at: Instant::now(),
            began_after: AtomicU64::new(0),
            arrived_after: AtomicU64::new(0),
            woken_at: AtomicU64::new(0),
            reset_in: AtomicUsize::new(0),
        }))
    }
}

impl ReadBudget {
    /// Polls the work on the connection; each poll renews the budget.
    pub async fn limit<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.begin();
            work.as_mut().poll(cx)
        })
        .await
    }

    fn begin(&self) {
        self.0.number.fetch_add(1, Ordering::Relaxed);
        self.0.began_after.store(self.nanos(), Ordering::Relaxed);
    }

    /// Time at which this poll began.
    pub fn began_at(&self) -> Instant {
        let after = Duration::from_nanos(self.0.began_after.load(Ordering::Relaxed));
        self.0.opened_at + after
    }

    /// Upper bound on the time that the oldest bytes of this poll had waited by `now`. `wakeup_delay` bounds the time from
    /// the arrival of bytes to the poll that they cause on a connection that had none.
    pub fn age(&self, now: Instant, wakeup_delay: Duration) -> Duration {
        let arrived_after = self.0.arrived_after.load(Ordering::Relaxed);
        let age =
            |since: u64| now.duration_since(self.0.opened_at).saturating_sub(Duration::from_nanos(since));
        match self.0.woken_at.load(Ordering::Relaxed) {
            NEVER => age(arrived_after),
            woken_at => {
                let before = Duration::from_nanos(woken_at.saturating_sub(arrived_after));
                age(woken_at) + before.min(wakeup_delay)
            }
        }
    }

    /// Notes that this poll reads the reset of a call.
    pub fn reset(&self) {
        self.0.reset_in.store(self.number(), Ordering::Relaxed);
    }

    /// Whether this poll has read the reset of a call.
    pub fn has_reset(&self) -> bool {
        self.0.reset_in.load(Ordering::Relaxed) == self.number()
    }

    /// Number of this poll, from 1.
    pub fn number(&self) -> usize {
        self.0.number.load(Ordering::Relaxed)
    }

    /// Nanoseconds since the connection was opened.
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.opened_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Connection that reads no more in a poll than its read budget.
#[derive(Debug)]
pub struct BudgetedReader<I> {
    io: I,
    read_budget: ReadBudget,
    /// Number of the poll to which the next two fields belong.
    poll: usize,
    /// Bytes that may still be read.
    left: usize,
    /// Whether the end of the poll was marked.
    is_marked: bool,
    marks: Marks,
}

impl<I: Unread> BudgetedReader<I> {
    pub fn new(io: I, read_budget: ReadBudget) -> Self {
        Self { io, read_budget, poll: 0, left: READ_BUDGET_BYTES, is_marked: false, marks: Marks::new() }
    }

    /// Begins the poll with this number.
    fn begin(&mut self, poll: usize) {
        let mark = self.marks.next(self.read_budget.0.began_after.load(Ordering::Relaxed));
        self.read_budget.0.arrived_after.store(mark.nanos, Ordering::Relaxed);
        self.read_budget.0.woken_at.store(mark.woken_at, Ordering::Relaxed);
        (self.poll, self.left, self.is_marked) = (poll, READ_BUDGET_BYTES, false);
    }

    /// Marks the end of a poll after which `unread` bytes are left.
    fn mark(&mut self, unread: u64) {
        self.is_marked = true;
        self.marks.add(unread, self.read_budget.nanos());
    }
}

impl<I: AsyncRead + Unread + Unpin> AsyncRead for BudgetedReader<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let poll = this.read_budget.number();
        if this.poll != poll {
            this.begin(poll);
        }
        if this.left == 0 {
            if !this.is_marked {
                let unread = this.io.unread_bytes();
                this.mark(unread);
                // The next poll comes after everything that is ready now.
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
        let bytes = buffer.filled().len() - before;
        this.left = this.left.saturating_sub(bytes);
        this.marks.read(bytes);
        this.is_marked = false;
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for BudgetedReader<I> {
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
        self.read += bytes as u64;
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
        let total = self.read + unread;
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
            self.marks.remove(at + 1);
        }
    }
}

/// Timer for HTTP/2, which notes the time of every frame for its keepalive: by the time at which the poll began that reads
/// the frame.
#[derive(Clone, Debug)]
pub struct ReadBudgetTimer {
    pub read_budget: ReadBudget,
    pub timer: TokioTimer,
}

impl Timer for ReadBudgetTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.timer.sleep(duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.timer.sleep_until(deadline)
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.timer.reset(sleep, deadline);
    }

    fn now(&self) -> Instant {
        self.read_budget.began_at()
    }
}
