//! A thread that sends requests, on a runtime of its own.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use rand::{SeedableRng as _, rngs::SmallRng};
use tokio::{
    runtime::Builder,
    sync::{mpsc::UnboundedSender, oneshot},
    task::JoinSet,
};

use super::{
    Phases, Run,
    connection::Connection,
    open_loop::{OpenLoop, Timer},
    request::RequestError,
    stream::{Pacing, Stream},
};

/// The start signal of a thread that is connected, or the error that prevented it.
pub(super) type Ready = Result<oneshot::Sender<Phases>, RequestError>;

/// Starts thread number `thread`, which connects and then reports to `ready`.
pub(super) fn start(
    thread: usize,
    run: Arc<Run>,
    ready: UnboundedSender<Ready>,
) -> io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let timer = {
        let _inside = runtime.enter();
        Timer::new()?
    };
    thread::Builder::new().name(format!("load-{thread}")).spawn(move || {
        runtime.block_on(async {
            let connections = match connect(&run, thread).await {
                Ok(connections) => connections,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let (start, started) = oneshot::channel();
            // Without a start, another thread could not connect.
            let _ = ready.send(Ok(start));
            drop(ready);
            if let Ok(phases) = started.await {
                send_requests(run, thread, phases, connections, timer).await;
            }
        });
    })
}

/// Opens this thread's share of the connections, which are dealt round-robin to the threads and the targets.
async fn connect(run: &Run, thread: usize) -> Result<Vec<Arc<Connection>>, RequestError> {
    let settings = &run.settings;
    let targets = settings.targets.iter().cycle();
    let mine = targets.take(settings.connections).skip(thread).step_by(settings.threads.max(1));
    let mut connections = Vec::new();
    for target in mine {
        let connection = Connection::open(target, settings.timeout, settings.send_deadline).await?;
        connections.push(Arc::new(connection));
    }
    Ok(connections)
}

async fn send_requests(
    run: Arc<Run>,
    thread: usize,
    phases: Phases,
    connections: Vec<Arc<Connection>>,
    mut timer: Timer,
) {
    let settings = &run.settings;
    let pacing = match settings.rate {
        None => Pacing::Closed,
        Some(rate) => Pacing::Open(Arc::new(OpenLoop::new(rate, thread, settings.threads, phases))),
    };
    // Each stream draws from its own sequence.
    let mut seeds = SmallRng::seed_from_u64(settings.seed);
    for _ in 0..thread {
        SmallRng::from_rng(&mut seeds);
    }
    let mut seeds = SmallRng::from_rng(&mut seeds);
    let mut streams = JoinSet::new();
    // Connections in the inner loop, so that the first requests of an open loop use different ones.
    for _ in 0..settings.streams {
        for connection in &connections {
            let (run, connection, pacing) = (Arc::clone(&run), Arc::clone(connection), pacing.clone());
            let random = SmallRng::from_rng(&mut seeds);
            streams.spawn(Stream { run, thread, phases, pacing, connection, random }.run());
        }
    }
    if let Pacing::Open(open_loop) = &pacing {
        let unsent = open_loop.announce(&mut timer, &run.stop).await;
        if let Some(tally) = run.tallies.get(thread) {
            tally.lock().unsent = unsent;
        }
    }
    streams.join_all().await;
}
