//! A server behind Envoy that takes its time and counts.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::{Router, extract::State};
use tokio::{net::TcpListener, sync::watch};

use super::prelude::*;

/// An upstream on the current runtime. A request is in it from the moment its handler begins until the handler is
/// about to answer, or is dropped because the connection was closed.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    pub(crate) port: u16,
}

#[derive(Debug)]
struct Shared {
    hold: Hold,
    inside: AtomicUsize,
    most: AtomicUsize,
    served: AtomicUsize,
}

/// The time for which a request is held.
#[derive(Debug)]
enum Hold {
    /// For a random time of the range, in microseconds.
    Between(u64, u64),
    /// Until it is opened.
    Closed(watch::Sender<bool>),
}

/// A request that is inside.
struct Visit(Arc<Shared>);

impl Visit {
    fn enter(shared: Arc<Shared>) -> Self {
        let inside = shared.inside.fetch_add(1, SeqCst) + 1;
        shared.most.fetch_max(inside, SeqCst);
        shared.served.fetch_add(1, SeqCst);
        Self(shared)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

async fn visit(State(shared): State<Arc<Shared>>) -> &'static str {
    let _visit = Visit::enter(Arc::clone(&shared));
    match &shared.hold {
        Hold::Between(from, to) => sleep(Duration::from_micros(fastrand::u64(*from..*to))).await,
        Hold::Closed(open) => drop(open.subscribe().wait_for(|open| *open).await),
    }
    "done\n"
}

impl Upstream {
    /// Holds each request for a random time.
    pub(crate) async fn between(from: Duration, to: Duration) -> Self {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).expect("short");
        Self::start(Hold::Between(micros(from), micros(to))).await
    }

    /// Holds all requests until they are released.
    pub(crate) async fn closed() -> Self {
        Self::start(Hold::Closed(watch::channel(false).0)).await
    }

    async fn start(hold: Hold) -> Self {
        let zero = AtomicUsize::default;
        let shared = Arc::new(Shared { hold, inside: zero(), most: zero(), served: zero() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("is bound").port();
        let router = Router::new().fallback(visit).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { shared, port }
    }

    /// Lets all requests go that are inside and those that come.
    pub(crate) fn open(&self) {
        if let Hold::Closed(open) = &self.shared.hold {
            open.send_replace(true);
        }
    }

    /// The number of requests in flight.
    pub(crate) fn inside(&self) -> usize {
        self.shared.inside.load(SeqCst)
    }

    /// The maximum number of requests in flight at once.
    pub(crate) fn most(&self) -> usize {
        self.shared.most.load(SeqCst)
    }

    /// The number of received requests.
    pub(crate) fn served(&self) -> usize {
        self.shared.served.load(SeqCst)
    }
}
