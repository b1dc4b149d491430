//! Components of a server: all that runs from its start to its stop, as one list. `start.rs` fills it.

use std::{future::pending, time::Duration};

use futures_util::future::{BoxFuture, FutureExt as _, OptionFuture, ready};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::{select, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tollgate_runtime::panics;
use tollgate_serve::readiness::Readiness;
use tollgate_telemetry::{statsd::StatsdExporter, traces::TraceExporter};

/// Minimum time for a component to finish requests in flight, and for an idle thread to end.
pub(super) const MIN_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Part of a server that runs until it is stopped. The function that starts it completes when it is ready.
pub(super) trait Component: Send {
    /// Completes when it ends by itself, which only a failure causes. Dropping the future loses nothing.
    fn failed(&mut self) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    /// Stops it: at once, or when the work in flight is finished, which may take until `deadline`.
    fn stop(self: Box<Self>, _deadline: Instant) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }
}

/// Components in the order of their start, with their names. Dropping it stops them without waiting.
pub(super) struct Components {
    started: Vec<(String, Box<dyn Component>)>,
    /// Cancelled by a panic outside the workers.
    pub(super) panicked: CancellationToken,
}

impl Components {
    /// An empty list. From now on, a panic on this thread, or of the process, is a failure.
    pub(super) fn new() -> Self {
        let panicked = panics::process_token().child_token();
        let alarm = panicked.clone();
        panics::set_thread_alarm(move || alarm.cancel());
        Self { started: Vec::new(), panicked }
    }

    /// Appends a component that was started. Its failure is reported with its name.
    pub(super) fn add(&mut self, name: impl Into<String>, component: impl Component + 'static) {
        self.started.push((name.into(), Box::new(component)));
    }

    /// Completes when a component ends by itself. The only remedy is to stop.
    pub(super) async fn failed(&mut self) -> ComponentFailure {
        let failures = self.started.iter_mut().map(|(name, component)| component.failed().map(|()| &**name));
        let mut failures = failures.collect::<FuturesUnordered<_>>();
        select! {
            // A component that panicked is named.
            biased;
            Some(name) = failures.next() => ComponentFailure::Ended(name.to_owned()),
            () = self.panicked.cancelled() => ComponentFailure::Panic,
        }
    }

    /// Stops the components in the reverse order of their start, one after the other.
    pub(super) async fn stop(self, deadline: Instant) {
        for (_, component) in self.started.into_iter().rev() {
            component.stop(deadline).await;
        }
    }
}

/// Essential component that ended unexpectedly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComponentFailure {
    /// A component of the list, by its name.
    #[error("{0} failed")]
    Ended(String),
    /// A task that watches rules, or that runs on the thread of the acceptor and HTTP.
    #[error("a background task panicked")]
    Panic,
}

/// Tasks that never end by themselves; aborted at the stop.
impl<T: Send + 'static> Component for JoinSet<T> {
    fn failed(&mut self) -> BoxFuture<'_, ()> {
        let ended = async {
            if self.join_next().await.is_none() {
                pending::<()>().await;
            }
        };
        ended.boxed()
    }
}

/// Health checks, which fail from the stop on.
impl Component for Readiness {
    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, ()> {
        Self::stop(&self);
        ready(()).boxed()
    }
}

impl Component for Option<StatsdExporter> {
    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, ()> {
        OptionFuture::from(self.map(StatsdExporter::stop)).map(drop).boxed()
    }
}

impl Component for Option<TraceExporter> {
    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, ()> {
        OptionFuture::from(self.map(TraceExporter::stop)).map(drop).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::oneshot;

    use super::*;
    use crate::bootstrap::metrics;

    /// Component that ends when a sender is dropped, and records its stop.
    struct Recorded {
        name: &'static str,
        ended: oneshot::Receiver<()>,
        stops: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Component for Recorded {
        fn failed(&mut self) -> BoxFuture<'_, ()> {
            (&mut self.ended).map(drop).boxed()
        }

        fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, ()> {
            async move { self.stops.lock().expect("no panic").push(self.name) }.boxed()
        }
    }

    #[tokio::test]
    async fn a_component_that_ends_is_named_and_all_are_stopped_in_the_reverse_order() {
        let (mut components, mut running) = (Components::new(), Vec::new());
        let stops = Arc::<Mutex<Vec<_>>>::default();
        for name in ["first", "second", "third"] {
            let (end, ended) = oneshot::channel();
            components.add(name, Recorded { name, ended, stops: Arc::clone(&stops) });
            running.push(end);
        }
        assert!(components.failed().now_or_never().is_none());
        drop(running.remove(1));
        assert_eq!(components.failed().await.to_string(), "second failed");
        components.stop(Instant::now()).await;
        assert_eq!(*stops.lock().expect("no panic"), ["third", "second", "first"]);
    }

    /// Although a panic on this thread is a failure by itself.
    #[tokio::test]
    async fn a_component_that_panics_is_named() {
        panics::install_hook(metrics::panicked);
        let mut components = Components::new();
        components.add("idle", JoinSet::<()>::new());
        components.add("busy", JoinSet::from_iter([async { panic!("on purpose") }]));
        assert_eq!(components.failed().await, ComponentFailure::Ended("busy".to_owned()));
        assert!(components.panicked.is_cancelled());
    }
}
