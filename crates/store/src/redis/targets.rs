//! Targets of the connections and subscriptions of a store: one server, the master that Sentinel names, or nodes of a cluster.

use std::{convert::Infallible, fmt, future::pending, time::Duration};

use ::redis::{Client, Value, aio::MultiplexedConnection};
use futures_util::StreamExt as _;
use tokio::select;
use tokio::time::{Instant, interval, sleep};
use tollgate_runtime::{backoff::Backoff, outage::OutageLog};

use super::connect::{ConnectError, ConnectTemplate, broken, connect, preload_scripts, within};
use super::sentinel::{Master, Sentinels};
use super::{Topology, script::CommandKeys, url::Address};

/// Interval of the probes of a subscription.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Time that a subscription has to last before its next failure is logged.
const SETTLE_TIME: Duration = Duration::from_secs(10);
/// Pause after a first failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
/// Longest pause between attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Reason of a subscription whose server does not respond.
const LATE: &str = "no response in time";

/// The means to connect to the servers of a store.
pub(super) enum Clients {
    Standalone(Box<Client>),
    /// Of the master that the sentinels name.
    Master(Box<ConnectTemplate>, Box<Sentinels>),
    /// Of nodes of a cluster, some of which are listed.
    Cluster(Box<ConnectTemplate>, Vec<Address>),
}

/// Target of a connection, resolved each time one is made.
pub(super) enum Target {
    /// One server, and the keys of the commands whose scripts it gets.
    Server(Box<Client>, &'static [CommandKeys]),
    /// The server that Sentinel names at that time.
    Master(Box<Master>),
}

impl Target {
    /// Makes a connection.
    pub(super) async fn connect(&mut self) -> Result<MultiplexedConnection, ConnectError> {
        match self {
            Self::Server(client, scripts) => {
                let mut connection = connect(client).await?;
                preload_scripts(&mut connection, scripts).await?;
                Ok(connection)
            }
            Self::Master(master) => master.connect().await,
        }
    }

    /// Returns another connection when the previous one, though it may work, leads to a former master.
    pub(super) async fn wait_for_failover(&mut self) -> MultiplexedConnection {
        match self {
            Self::Server(..) => pending().await,
            Self::Master(master) => master.wait_for_failover().await,
        }
    }
}

/// Name of the server in logs.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(client, _) => client.get_connection_info().addr().fmt(f),
            Self::Master(master) => master.fmt(f),
        }
    }
}

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
        let mut connection = within(client.get_async_pubsub(), LATE).await?;
        within(connection.subscribe(channel), LATE).await?;
        notify();
        let (mut sink, mut messages) = connection.split();
        let mut probes = interval(PROBE_INTERVAL);
        loop {
            select! {
                message = messages.next() => match message {
                    Some(_) => notify(),
                    None => return Err(broken("connection closed").into()),
                },
                _ = probes.tick() => drop(within(sink.ping::<Value>(), LATE).await?),
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
