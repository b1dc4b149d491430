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
    RedisSettings, RedisStore, access::Access, address::Address, sentinels::Sentinels, target::ConnectError,
    topology::Topology,
};
use crate::store::StoreError;

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
pub(super) enum Ears {
    One(Box<Client>),
    Master(Box<(Access, Sentinels)>),
    Cluster(Box<Access>, usize),
}

impl RedisStore {
    /// Calls `heard` for whatever is published in a channel, and after each interruption, in which something may have
    /// been missed. Never ends.
    ///
    /// # Errors
    /// When the settings make no sense.
    pub async fn listen(
        &self,
        settings: &RedisSettings,
        channel: &[u8],
        heard: impl Fn(),
    ) -> Result<Infallible, StoreError> {
        let mut ears = settings.ears()?;
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        let mut outage = OutageLog::default();
        loop {
            let begun = Instant::now();
            let error = match self.hear(&mut ears, channel, &heard).await {
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
        ears: &mut Ears,
        channel: &[u8],
        heard: &impl Fn(),
    ) -> Result<Infallible, ConnectError> {
        let client = self.client(ears).await?;
        let mut connection = within(client.get_async_pubsub()).await?;
        within(connection.subscribe(channel)).await?;
        heard();
        let (mut sink, mut messages) = connection.split();
        let mut probes = interval(PROBE_INTERVAL);
        loop {
            select! {
                message = messages.next() => match message {
                    Some(_) => heard(),
                    None => return Err(broken("the connection broke").into()),
                },
                _ = probes.tick() => drop(within(sink.ping::<Value>()).await?),
            }
        }
    }

    async fn client(&self, ears: &mut Ears) -> Result<Client, ConnectError> {
        match (ears, &self.shared.servers) {
            (Ears::One(client), _) => Ok(Client::clone(client)),
            (Ears::Master(master), _) => {
                let (access, sentinels) = &mut **master;
                let named = sentinels.ask().await?;
                let named = named.first().ok_or_else(|| broken("no master is named"))?;
                Ok(access.client(&named.address)?)
            }
            (Ears::Cluster(access, turn), Topology::Cluster(cluster)) => {
                // Another one each time, for one may be out of reach.
                let nodes: Vec<Address> = cluster.nodes();
                let at = turn.checked_rem(nodes.len()).unwrap_or_default();
                *turn = turn.wrapping_add(1);
                let node = nodes.get(at).ok_or_else(|| broken("no node is known"))?;
                Ok(access.client(node)?)
            }
            (Ears::Cluster(..), Topology::Single(_)) => Err(broken("no cluster").into()),
        }
    }
}

async fn within<T>(answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    timeout(RESPONSE_TIMEOUT, answer).await.unwrap_or_else(|_| Err(broken("no answer in time")))
}

fn broken(why: &'static str) -> RedisError {
    (ErrorKind::Io, why).into()
}
