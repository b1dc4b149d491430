//! Read budgets of a worker's connections, and the age of the bytes that they read.
//!
//! HTTP/2 reads all that a socket holds before it accepts the first call. A client with a megabyte of calls on their way
//! would occupy its worker for tens of milliseconds, and the calls that it has reset meanwhile would count as an attack.
//! So each poll of a connection's task has a budget of a few kilobytes. Then the calls in them and all other connections
//! are served.

mod marks;
mod timer;

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::marks::{Marks, NEVER};
pub(crate) use self::timer::ReadBudgetTimer;

/// Bytes after which a poll of a connection reads no more, about a hundred calls. The last read may exceed it.
const READ_BUDGET_BYTES: usize = 8 * 1024;

/// Connection whose receive buffer can be measured.
pub(crate) trait Unread {
    /// Number of bytes that were received and not read; 0 if unknown.
    fn unread_bytes(&self) -> u64;
}

/// Read budget of one connection, which each poll of its task renews. Clones are handles on the same connection.
#[derive(Clone, Debug)]
pub(crate) struct ReadBudget(Arc<Shared>);

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
    pub(crate) async fn limit<F: Future>(&self, work: F) -> F::Output {
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
    pub(crate) fn began_at(&self) -> Instant {
        let after = Duration::from_nanos(self.0.began_after.load(Ordering::Relaxed));
        self.0.opened_at.checked_add(after).unwrap_or(self.0.opened_at)
    }

    /// Upper bound on the time that the oldest bytes of this poll had waited by `now`. `wakeup_delay` bounds the time from
    /// the arrival of bytes to the poll that they cause on a connection that had none.
    pub(crate) fn age(&self, now: Instant, wakeup_delay: Duration) -> Duration {
        let arrived_after = self.0.arrived_after.load(Ordering::Relaxed);
        let age = |since: u64| {
            now.saturating_duration_since(self.0.opened_at).saturating_sub(Duration::from_nanos(since))
        };
        match self.0.woken_at.load(Ordering::Relaxed) {
            NEVER => age(arrived_after),
            woken_at => {
                let before = Duration::from_nanos(woken_at.saturating_sub(arrived_after));
                age(woken_at).saturating_add(before.min(wakeup_delay))
            }
        }
    }

    /// Notes that this poll reads the reset of a call.
    pub(crate) fn reset(&self) {
        self.0.reset_in.store(self.number(), Ordering::Relaxed);
    }

    /// Whether this poll has read the reset of a call.
    pub(crate) fn has_reset(&self) -> bool {
        self.0.reset_in.load(Ordering::Relaxed) == self.number()
    }

    /// Number of this poll, from 1.
    pub(crate) fn number(&self) -> usize {
        self.0.number.load(Ordering::Relaxed)
    }

    /// Nanoseconds since the connection was opened.
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.opened_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Connection that reads no more in a poll than its read budget.
#[derive(Debug)]
pub(crate) struct BudgetedReader<I> {
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
    pub(crate) fn new(io: I, read_budget: ReadBudget) -> Self {
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
        let bytes = buffer.filled().len().saturating_sub(before);
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

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        collections::VecDeque,
        rc::Rc,
        task::{Wake, Waker},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        task::LocalSet,
    };

    use super::*;

    const CAPACITY: usize = 64 * READ_BUDGET_BYTES;

    impl Unread for DuplexStream {
        fn unread_bytes(&self) -> u64 {
            0
        }
    }

    #[tokio::test]
    async fn a_connection_with_much_to_read_lets_others_go_between() {
        let (near, mut far) = duplex(CAPACITY);
        far.write_all(&vec![7; 10 * READ_BUDGET_BYTES]).await.expect("room");
        drop(far);
        let others = Rc::new(Cell::new(0));
        let work = async {
            let read_budget = ReadBudget::default();
            let mut io = BudgetedReader::new(near, read_budget.clone());
            let reading = async {
                let (mut read, mut buffer) = (0, vec![0; READ_BUDGET_BYTES / 2]);
                loop {
                    match io.read(&mut buffer).await.expect("reads") {
                        0 => return read,
                        bytes => read += bytes,
                    }
                }
            };
            read_budget.limit(reading).await
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
        assert_eq!(read.await.expect("no panic"), 10 * READ_BUDGET_BYTES);
        assert!(others.get() >= 5, "{} polls of another task", others.get());
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connection that is read as scripted: a number of bytes, or `None` if it has to wait.
    struct Script(VecDeque<Option<usize>>);

    impl Unread for Script {
        fn unread_bytes(&self) -> u64 {
            self.0.iter().map_while(|bytes| *bytes).sum::<usize>() as u64
        }
    }

    impl AsyncRead for Script {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(bytes) = self.0.pop_front().flatten() else { return Poll::Pending };
            buffer.put_slice(&vec![0; bytes]);
            Poll::Ready(Ok(()))
        }
    }

    /// Reads in a poll until the reader has to wait `waits` times. Returns the number of bytes.
    fn read_in_a_poll(reader: &mut BudgetedReader<Script>, waits: usize, cx: &mut Context<'_>) -> usize {
        reader.read_budget.begin();
        let (mut read, mut left) = (0, waits);
        while left > 0 {
            let mut bytes = vec![0; READ_BUDGET_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *reader).poll_read(cx, &mut buffer) {
                Poll::Pending => left -= 1,
                Poll::Ready(_) => read += buffer.filled().len(),
            }
        }
        read
    }

    #[test]
    fn a_poll_that_ends_after_a_pause_wakes_the_connection() {
        let script = [Some(1), None, Some(READ_BUDGET_BYTES), Some(1), None];
        let mut reader = BudgetedReader::new(Script(script.into()), ReadBudget::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        for (waits, read) in [(2, READ_BUDGET_BYTES + 1), (1, 1)] {
            assert_eq!(read_in_a_poll(&mut reader, waits, &mut cx), read);
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn the_age_of_what_woke_a_connection_is_at_most_the_delay_of_its_wakeup() {
        let read_budget = ReadBudget::default();
        let (second, delay) = (Duration::from_secs(1), Duration::from_millis(3));
        let later = read_budget.0.opened_at + second;
        read_budget.0.woken_at.store(1_000_000_000, Ordering::Relaxed);
        assert_eq!(read_budget.age(later, delay), delay);
        assert_eq!(read_budget.age(later + delay, delay), 2 * delay, "a later poll of the burst");
        read_budget.0.woken_at.store(0, Ordering::Relaxed);
        assert_eq!(read_budget.age(read_budget.0.opened_at, delay), Duration::ZERO);
        read_budget.0.woken_at.store(NEVER, Ordering::Relaxed);
        assert_eq!(read_budget.age(later, delay), second);
    }
}
