//! Containment of panics, by where they happen.
//!
//! - While one request is answered: that caller gets an error, and everything else continues ([`CatchUnwind`]).
//! - In a task that serves one connection: that connection is closed, and everything else continues.
//! - Anywhere else on a thread that serves: the alarm of the thread is raised, and the process stops in order, because
//!   the state that other parts rely on may be broken. Without this, a runtime keeps a panic of one of its tasks to
//!   itself.
//!
//! Every panic is logged with its place and counted.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::task::{Context, Poll, ready};
use std::{pin::Pin, sync::LazyLock, thread};

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio_util::sync::CancellationToken;

type Alarm = Box<dyn Fn()>;

thread_local! {
    /// Called by a panic on this thread, unless the panic is contained.
    static ALARM: RefCell<Option<Alarm>> = const { RefCell::new(None) };
    /// Whether this thread works on one request or connection.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `count` with the role of the thread for every panic from now on, and raises the alarm of its thread.
pub fn install_hook(count: impl Fn(&'static str) + Send + Sync + 'static) {
    let log = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        log(info);
        count(match thread::current().name() {
            Some("main") => "main",
            Some("config-watch") => "config",
            Some(name) if name.starts_with("worker-") => "worker",
            Some(_) | None => "other",
        });
        if !IS_CONTAINED.try_with(Cell::get).unwrap_or(false) {
            // Both fail only when the thread is about to end, which is noticed too.
            let _ = ALARM.try_with(|alarm| {
                if let Ok(Some(raise)) = alarm.try_borrow().as_deref() {
                    raise();
                }
            });
        }
    }));
}

/// Makes panics on this thread call `alarm`.
pub fn set_thread_alarm(alarm: impl Fn() + 'static) {
    // It is borrowed only while a panic unwinds.
    let _ = ALARM.try_with(|slot| slot.replace(Some(Box::new(alarm))));
}

pin_project! {
    /// Work on one request or one connection; a panic in it becomes an error.
    #[derive(Debug)]
    pub struct CatchUnwind<F> {
        #[pin]
        work: Option<F>,
    }
}

/// The work on a request or a connection panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl<F> CatchUnwind<F> {
    /// Contains the panics of `work`.
    pub const fn new(work: F) -> Self {
        Self { work: Some(work) }
    }
}

impl<F: Future> Future for CatchUnwind<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut work = self.project().work;
        let polled = contain(|| {
            let Some(running) = work.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            let done = ready!(running.poll(cx));
            // Dropped here, because the drop may panic too.
            work.set(None);
            Poll::Ready(Some(done))
        });
        match polled {
            Ok(polled) => polled.map(|done| done.ok_or(Panicked)),
            Err(Panicked) => {
                // If the drop panics as well, nothing is left of it.
                let _ = contain(|| work.set(None));
                Poll::Ready(Err(Panicked))
            }
        }
    }
}

/// Runs `act`; a panic in it raises no alarm.
fn contain<T>(act: impl FnOnce() -> T) -> Result<T, Panicked> {
    let was_contained = IS_CONTAINED.replace(true);
    // Broken state is dropped with the request; shared state is behind locks that are released.
    let done = panic::catch_unwind(AssertUnwindSafe(act));
    IS_CONTAINED.set(was_contained);
    done.map_err(|_| Panicked)
}

/// Executor for the tasks of a connection, one of which is a response in progress. A panic ends only its own task.
#[derive(Clone, Copy, Debug)]
pub struct CatchUnwindExecutor;

impl<F> Executor<F> for CatchUnwindExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(CatchUnwind::new(task));
    }
}

/// Cancelled when a thread that serves the whole process, not one server of it, panics.
pub fn process_token() -> CancellationToken {
    static PANICKED: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);
    PANICKED.clone()
}

/// Cancels its token when a panic drops it.
#[derive(Debug)]
pub struct CancelOnPanic(pub CancellationToken);

impl Drop for CancelOnPanic {
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
    struct PanicOnDrop;

    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[tokio::test]
    async fn contained_panics_raise_no_alarm() {
        install_hook(|_| {});
        let raised = Rc::new(Cell::new(0));
        set_thread_alarm({
            let raised = Rc::clone(&raised);
            move || raised.set(raised.get() + 1)
        });
        let in_work = CatchUnwind::new(poll_fn(|_| -> Poll<()> { panic!("on purpose") }));
        assert_eq!(in_work.await, Err(Panicked));
        let last = PanicOnDrop;
        let in_drop = CatchUnwind::new(poll_fn(move |_| {
            let _held = &last;
            Poll::Ready(())
        }));
        assert_eq!(in_drop.await, Err(Panicked));
        assert_eq!(raised.get(), 0);
        assert!(panic::catch_unwind(|| panic!("on purpose")).is_err());
        assert_eq!(raised.get(), 1);
    }

    #[test]
    fn only_a_panic_cancels() {
        let token = CancellationToken::new();
        drop(CancelOnPanic(token.clone()));
        assert!(!token.is_cancelled());
        let held = CancelOnPanic(token.clone());
        let ended = thread::spawn(move || {
            let _held = held;
            panic!("on purpose");
        });
        assert!(ended.join().is_err() && token.is_cancelled());
    }
}
