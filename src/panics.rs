//! What a panic means, by where it happens.
//!
//! - While one request is answered: that caller gets an error, and all else goes on ([`Contained`]).
//! - Anywhere else on a thread that serves: the alarm is raised, and the process stops in order, for nobody knows what
//!   is left of a part that others rely on. Without this, a runtime keeps a panic of one of its tasks to itself.
//!
//! Every one is logged with its place and counted.

use std::{
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use tokio_util::sync::CancellationToken;

use crate::metrics;

type Alarm = Box<dyn Fn()>;

thread_local! {
    /// What a panic on this thread sets off, unless it is contained.
    static ALARM: RefCell<Option<Alarm>> = const { RefCell::new(None) };
    /// Whether this thread is at work on one request.
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

/// Work on one request: a panic in it is an error of it.
#[derive(Debug)]
pub(crate) struct Contained<F>(pub(crate) F);

/// The work on a request panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl<F: Future + Unpin> Future for Contained<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let was_contained = IS_CONTAINED.replace(true);
        // What broke is dropped with the request; what it shares with others has locks that are free again.
        let polled = panic::catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(cx)));
        IS_CONTAINED.set(was_contained);
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
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
    use super::*;

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
