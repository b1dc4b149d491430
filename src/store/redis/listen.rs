//! Hearing what is published, on a connection of its own.

use std::{convert::Infallible, time::Duration};

use ::redis::{Client, ErrorKind, RedisError, RedisResult, Value};
use futures_util::StreamExt as _;
use tokio::{
    select,
    time::{Instant, interval, sleep, timeout},
};

use super::{
    RedisSettings, RedisStore, access::Access, address::Address, sentinels::Sentinels, target::ConnectError,
    topology::Topology,
};
use crate::store::{StoreError, chance::jittered};

/// How long a connection may take, or an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks whether the server still answers.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// How long a connection has to last before the next break of it is news.
const CALM: Duration = Duration::from_secs(10);
/// The pause after a first failure; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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
        let (mut pause, mut is_told) = (SHORTEST_PAUSE, false);
        loop {
            let begun = Instant::now();
            let error = match self.hear(&mut ears, channel, &heard).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            // One that breaks soon is no reason to hurry, nor to tell it again.
            if begun.elapsed() > CALM {
                (pause, is_told) = (SHORTEST_PAUSE, false);
            }
            if !is_told {
                tracing::warn!(%error, "changes of rules and lists are polled: they can't be heard of");
                is_told = true;
            }
            sleep(jittered(pause)).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
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
        let mut probes = interval(PROBE_EVERY);
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
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(broken("no answer in time")))
}

fn broken(why: &'static str) -> RedisError {
    (ErrorKind::Io, why).into()
}
