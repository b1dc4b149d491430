//! One thread that asks, on a runtime of its own.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use fastrand::Rng;
use tokio::{
    runtime::Builder,
    sync::{mpsc::UnboundedSender, oneshot},
    task::JoinSet,
};

use super::{
    Job, Span,
    connection::{Connection, Failure},
    pace::OpenLoop,
    stream::{Pace, Stream},
    timer::Timer,
};
use crate::settings;

/// A thread is connected and waits for its start, or why it is not.
pub(super) type Ready = Result<oneshot::Sender<Span>, Failure>;

/// Starts thread number `thread`, which connects and reports that it is ready.
pub(super) fn start(
    thread: usize,
    job: Arc<Job>,
    ready: UnboundedSender<Ready>,
) -> io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let timer = {
        let _inside = runtime.enter();
        Timer::new()?
    };
    thread::Builder::new().name(format!("load-{thread}")).spawn(move || {
        runtime.block_on(async {
            let connections = match connect(&job, thread).await {
                Ok(connections) => connections,
                Err(failure) => return drop(ready.send(Err(failure))),
            };
            let (start, started) = oneshot::channel();
            // Without a start, another thread could not connect.
            let _ = ready.send(Ok(start));
            drop(ready);
            if let Ok(span) = started.await {
                ask(job, thread, span, connections, timer).await;
            }
        });
    })
}

/// This thread's share of the connections. They take turns with the threads, and with the targets.
async fn connect(job: &Job, thread: usize) -> Result<Vec<Arc<Connection>>, Failure> {
    let settings = &job.settings;
    let targets = settings.targets.iter().cycle();
    let mine = targets.take(settings.connections).skip(thread).step_by(settings.threads.max(1));
    let mut connections = Vec::new();
    for target in mine {
        let connection = Connection::open(target, settings.timeout, settings.sends_deadline).await?;
        connections.push(Arc::new(connection));
    }
    Ok(connections)
}

async fn ask(job: Arc<Job>, thread: usize, span: Span, connections: Vec<Arc<Connection>>, mut timer: Timer) {
    let settings = &job.settings;
    let pace = match settings.pace {
        settings::Pace::Closed => Pace::Closed,
        settings::Pace::Open(rate) => {
            Pace::Open(Arc::new(OpenLoop::new(rate, thread, settings.threads, span)))
        }
    };
    // Each stream draws from a sequence of its own.
    let mut seeds = Rng::with_seed(settings.seed);
    (0..thread).for_each(|_| drop(seeds.fork()));
    let mut seeds = seeds.fork();
    let mut streams = JoinSet::new();
    // The first requests of an open loop go out over different connections.
    for _ in 0..settings.streams {
        for connection in &connections {
            let (job, connection, pace) = (Arc::clone(&job), Arc::clone(connection), pace.clone());
            streams.spawn(Stream { job, thread, span, pace, connection, random: seeds.fork() }.run());
        }
    }
    if let Pace::Open(open) = &pace {
        let unsent = open.announce(&mut timer, &job.stop).await;
        if let Some(tally) = job.tallies.get(thread) {
            tally.lock().unsent = unsent;
        }
    }
    streams.join_all().await;
}
