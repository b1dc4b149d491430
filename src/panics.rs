//! What a panic means, by where it happens.
//!
//! - While one request is answered: that caller gets an error, and all else goes on ([`Contained`]).
//! - In what serves one connection: that one is closed, and all else goes on.
//! - Anywhere else on a thread that serves: the alarm is raised, and the process stops in order, for nobody knows what
//!   is left of a part that others rely on. Without this, a runtime keeps a panic of one of its tasks to itself.
//!
//! Every one is logged with its place and counted.

use std::{
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll, ready},
    thread,
};

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio_util::sync::CancellationToken;

use crate::metrics;

type Alarm = Box<dyn Fn()>;

thread_local! {
    /// What a panic on this thread sets off, unless it is contained.
    static ALARM: RefCell<Option<Alarm>> = const { RefCell::new(None) };
    /// Whether this thread is at work on one request or connection.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// From now on every panic is counted, and raises the alarm of its thread.
pub(crate) fn watch() {
    let log = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        log(info);
        metrics::panicked(part());
        if !IS_CONTAINED.try_with(Cell::get).unwrap_or(false) {
            // Neither fails but when the thread is about to end, which is noticed too.
            let _ = ALARM.try_with(|alarm| {
                if let Ok(Some(raise)) = alarm.try_borrow().as_deref() {
                    raise();
                }
            });
        }
    }));
}

/// What this thread is there for.
fn part() -> &'static str {
    match thread::current().name() {
        Some("main") => "main",
        Some("config-watch") => "config",
        Some(name) if name.starts_with("worker-") => "worker",
        Some(_) | None => "other",
    }
}

/// Has panics on this thread call `raise`.
pub(crate) fn raise_here(raise: impl Fn() + 'static) {
    // Nobody holds it while no panic is under way.
    let _ = ALARM.try_with(|alarm| alarm.replace(Some(Box::new(raise))));
}

pin_project! {
    /// Work on one request, or on one connection: a panic in it is an error of it.
    #[derive(Debug)]
    pub(crate) struct Contained<F> {
        #[pin]
        work: Option<F>,
    }
}

/// The work on a request or a connection panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl<F> Contained<F> {
    pub(crate) const fn new(work: F) -> Self {
        Self { work: Some(work) }
    }
}

impl<F: Future> Future for Contained<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut work = self.project().work;
        let polled = contain(|| {
            let Some(at_work) = work.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            let done = ready!(at_work.poll(cx));
            // Here, as it may panic too.
            work.set(None);
            Poll::Ready(Some(done))
        });
        match polled {
            Ok(polled) => polled.map(|done| done.ok_or(Panicked)),
            Err(Panicked) => {
                // If that panics as well, nothing is left of it.
                let _ = contain(|| work.set(None));
                Poll::Ready(Err(Panicked))
            }
        }
    }
}

/// Does something over which a panic raises no alarm.
fn contain<T>(act: impl FnOnce() -> T) -> Result<T, Panicked> {
    let was_contained = IS_CONTAINED.replace(true);
    // What broke is dropped with the request; what it shares with others has locks that are free again.
    let done = panic::catch_unwind(AssertUnwindSafe(act));
    IS_CONTAINED.set(was_contained);
    done.map_err(|_| Panicked)
}

/// Runs the tasks of a connection, one of which is an answer on its way. A panic in one ends that one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainedTasks;

impl<F> Executor<F> for ContainedTasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(Contained::new(task));
    }
}

/// Cancelled when a thread panicked that is there for the whole process, and not for one server of it.
pub(crate) fn of_process() -> CancellationToken {
    static PANICKED: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);
    PANICKED.clone()
}

/// Cancels its token when a panic drops it.
#[derive(Debug)]
pub(crate) struct OnPanic(pub(crate) CancellationToken);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, rc::Rc};

    use super::*;

    /// Panics when it is dropped.
    struct Last;

    impl Drop for Last {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[tokio::test]
    async fn neither_work_nor_what_it_leaves_raises_an_alarm() {
        watch();
        let raised = Rc::new(Cell::new(0));
        raise_here({
            let raised = Rc::clone(&raised);
            move || raised.set(raised.get() + 1)
        });
        let in_work = Contained::new(poll_fn(|_| -> Poll<()> { panic!("on purpose") }));
        assert_eq!(in_work.await, Err(Panicked));
        let last = Last;
        let in_the_end = Contained::new(poll_fn(move |_| {
            let _held = &last;
            Poll::Ready(())
        }));
        assert_eq!(in_the_end.await, Err(Panicked));
        assert_eq!(raised.get(), 0);
        assert!(panic::catch_unwind(|| panic!("on purpose")).is_err());
        assert_eq!(raised.get(), 1);
    }

    #[test]
    fn only_a_panic_cancels() {
        let token = CancellationToken::new();
        drop(OnPanic(token.clone()));
        assert!(!token.is_cancelled());
        let held = OnPanic(token.clone());
        let ended = thread::spawn(move || {
            let _held = held;
            panic!("on purpose");
        });
        assert!(ended.join().is_err() && token.is_cancelled());
    }
}
