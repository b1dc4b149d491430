//! Hearing what is published, on a connection of its own.

use std::{convert::Infallible, time::Duration};

use ::redis::{Client, ErrorKind, RedisError, RedisResult, Value};
use futures_util::StreamExt as _;
use tokio::{
    select,
    time::{Instant, interval, sleep, timeout},
};

use tollgate_runtime::{backoff::Backoff, outage::OutageLog};

use super::{
    RedisSettings, RedisStore, address::Address, connect::ConnectTemplate, sentinels::Sentinels,
    target::ConnectError, topology::Topology,
};
use crate::StoreError;

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

/// Where to hear what is published: any node of a cluster knows, and whatever follows a master.
pub(super) enum Subscription {
    One(Box<Client>),
    Master(Box<(ConnectTemplate, Sentinels)>),
    Cluster(Box<ConnectTemplate>, usize),
}

impl RedisStore {
    /// Calls `recovered` for whatever is published in a channel, and after each interruption, in which something may have
    /// been missed. Never ends.
    ///
    /// # Errors
    /// When the settings make no sense.
    pub async fn listen(
        &self,
        settings: &RedisSettings,
        channel: &[u8],
        recovered: impl Fn(),
    ) -> Result<Infallible, StoreError> {
        let mut subscription = settings.subscription()?;
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        let mut outage = OutageLog::default();
        loop {
            let begun = Instant::now();
            let error = match self.hear(&mut subscription, channel, &recovered).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            // A subscription that breaks soon neither resets the backoff nor is logged again.
            if begun.elapsed() > SETTLE_TIME {
                backoff.reset();
                outage = OutageLog::default();
            }
            if outage.failed() {
                tracing::warn!(%error, "pub/sub subscription failed; polling for changes");
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Listens until the connection breaks.
    async fn hear(
        &self,
        subscription: &mut Subscription,
        channel: &[u8],
        recovered: &impl Fn(),
    ) -> Result<Infallible, ConnectError> {
        let client = self.client(subscription).await?;
        let mut connection = within(client.get_async_pubsub()).await?;
        within(connection.subscribe(channel)).await?;
        recovered();
        let (mut sink, mut messages) = connection.split();
        let mut probes = interval(PROBE_INTERVAL);
        loop {
            select! {
                message = messages.next() => match message {
                    Some(_) => recovered(),
                    None => return Err(broken("the connection disconnected").into()),
                },
                _ = probes.tick() => drop(within(sink.ping::<Value>()).await?),
            }
        }
    }

    async fn client(&self, subscription: &mut Subscription) -> Result<Client, ConnectError> {
        match (subscription, &self.shared.servers) {
            (Subscription::One(client), _) => Ok(Client::clone(client)),
            (Subscription::Master(master), _) => {
                let (access, sentinels) = &mut **master;
                let named = sentinels.ask().await?;
                let named = named.first().ok_or_else(|| broken("no master is named"))?;
                Ok(access.client(&named.address)?)
            }
            (Subscription::Cluster(access, turn), Topology::Cluster(cluster)) => {
                // Another one each time, for one may be out of reach.
                let nodes: Vec<Address> = cluster.nodes();
                let at = turn.checked_rem(nodes.len()).unwrap_or_default();
                *turn = turn.wrapping_add(1);
                let node = nodes.get(at).ok_or_else(|| broken("no node is known"))?;
                Ok(access.client(node)?)
            }
            (Subscription::Cluster(..), Topology::Single(_)) => Err(broken("no cluster").into()),
        }
    }
}

async fn within<T>(answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    timeout(RESPONSE_TIMEOUT, answer).await.unwrap_or_else(|_| Err(broken("no answer in time")))
}

fn broken(why: &'static str) -> RedisError {
    (ErrorKind::Io, why).into()
}
