//! Pub/sub notifications, on a connection of their own.

use std::{convert::Infallible, time::Duration};

use ::redis::{Client, ErrorKind, RedisError, RedisResult, Value};
use futures_util::StreamExt as _;
use tokio::{
    select,
    time::{Instant, interval, sleep, timeout},
};
use tollgate_runtime::{backoff::Backoff, outage::OutageLog};

use super::{Topology, connect::ConnectError, settings::Clients};

/// Deadline for a connection, and for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of the probes of the connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Time that a subscription has to last before its next failure is logged.
const SETTLE_TIME: Duration = Duration::from_secs(10);
/// Pause after a first failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
/// Longest pause between attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// A subscription: on any node of a cluster, which forwards messages, or on whichever server is the master.
pub(super) struct Subscription {
    clients: Clients,
    attempts: usize,
}

impl Subscription {
    pub(super) const fn new(clients: Clients) -> Self {
        Self { clients, attempts: 0 }
    }

    /// Calls `notify` for each message of a channel, and after each interruption, in which messages may have been
    /// missed. Never ends.
    pub(super) async fn run(&mut self, servers: &Topology, channel: &[u8], notify: impl Fn()) -> Infallible {
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        let mut outage = OutageLog::default();
        loop {
            let started = Instant::now();
            let error = match self.receive(servers, channel, &notify).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            // A subscription that breaks soon neither resets the backoff nor is logged again.
            if started.elapsed() > SETTLE_TIME {
                backoff.reset();
                outage = OutageLog::default();
            }
            if outage.failed() {
                tracing::warn!(%error, "pub/sub subscription failed; polling for changes");
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Subscribes once and receives messages until the connection breaks.
    async fn receive(
        &mut self,
        servers: &Topology,
        channel: &[u8],
        notify: &impl Fn(),
    ) -> Result<Infallible, ConnectError> {
        let client = self.client(servers).await?;
        let mut connection = with_timeout(client.get_async_pubsub()).await?;
        with_timeout(connection.subscribe(channel)).await?;
        notify();
        let (mut sink, mut messages) = connection.split();
        let mut probes = interval(PROBE_INTERVAL);
        loop {
            select! {
                message = messages.next() => match message {
                    Some(_) => notify(),
                    None => return Err(broken("connection closed").into()),
                },
                _ = probes.tick() => drop(with_timeout(sink.ping::<Value>()).await?),
            }
        }
    }

    async fn client(&mut self, servers: &Topology) -> Result<Client, ConnectError> {
        match (&mut self.clients, servers) {
            (Clients::Standalone(client), _) => Ok(Client::clone(client)),
            (Clients::Master(template, sentinels), _) => {
                let named = sentinels.query().await?;
                let named = named.first().ok_or_else(|| broken("no master named by the sentinels"))?;
                Ok(template.client(&named.address)?)
            }
            (Clients::Cluster(template, _), Topology::Cluster(cluster)) => {
                // A different node each time, since one may be unreachable.
                let nodes = cluster.nodes();
                let at = self.attempts.checked_rem(nodes.len()).unwrap_or_default();
                self.attempts = self.attempts.wrapping_add(1);
                let node = nodes.get(at).ok_or_else(|| broken("no known cluster node"))?;
                Ok(template.client(node)?)
            }
            (Clients::Cluster(..), Topology::Single(_)) => Err(broken("not a cluster").into()),
        }
    }
}

async fn with_timeout<T>(response: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    timeout(RESPONSE_TIMEOUT, response).await.unwrap_or_else(|_| Err(broken("no response in time")))
}

fn broken(reason: &'static str) -> RedisError {
    (ErrorKind::Io, reason).into()
}
