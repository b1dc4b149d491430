//! Budgets, marks and the timer of a connection.

use std::task::{Wake, Waker};
use std::{cell::Cell, collections::VecDeque, rc::Rc};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::LocalSet;

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

#[test]
fn the_time_is_that_at_which_the_poll_began() {
    let timer = ReadBudgetTimer { read_budget: ReadBudget::default(), timer: TokioTimer::new() };
    let opened = timer.now();
    while Instant::now() == opened {}
    assert_eq!(timer.now(), opened, "no poll has begun since");
    timer.read_budget.begin();
    let began = timer.now();
    assert!(began > opened && began <= Instant::now());
}
