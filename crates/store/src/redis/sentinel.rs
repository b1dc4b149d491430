//! Following the master that Sentinel names.

use std::{cmp::Ordering, fmt, time::Duration};

use ::redis::{ErrorKind, RedisError, RedisResult, Value, aio::MultiplexedConnection, cmd};
use tokio::time::{sleep, timeout};

use super::{
    address::Address,
    connect::{ConnectTemplate, preload_script},
    sentinels::{Named, Sentinels},
    target::ConnectError,
};
use tollgate_runtime::backoff::lengthened;

/// How long a server may take to say what it is.
const ROLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Between two questions whether the master is still the same.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A master, and the sentinels that know where it is.
pub(super) struct Master {
    access: ConnectTemplate,
    sentinels: Sentinels,
    /// Where the master was when the last connection to it was made.
    address: Option<Address>,
    /// The latest epoch in which it was named.
    epoch: Option<u64>,
}

impl Master {
    pub(super) fn new(access: ConnectTemplate, sentinels: Sentinels) -> Self {
        Self { access, sentinels, address: None, epoch: None }
    }

    /// Connects to the master that is named now.
    pub(super) async fn connect(&mut self) -> Result<MultiplexedConnection, ConnectError> {
        let mut last = ConnectError::UnknownMaster(self.sentinels.master().to_owned());
        for named in self.sentinels.ask().await? {
            if !self.believes(&named, false) {
                last = ConnectError::Former(named.address);
                continue;
            }
            match self.connect_to(&named.address).await {
                Ok(connection) => {
                    self.note(named);
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: &Address) -> Result<MultiplexedConnection, ConnectError> {
        let mut connection = self.access.connect(address).await?;
        // During a failover, the sentinels may still name the old master, which was demoted by then.
        match role(&mut connection).await?.as_deref() {
            Some(b"master") => {
                preload_script(&mut connection).await?;
                Ok(connection)
            }
            _ => Err(ConnectError::NoMaster(address.clone())),
        }
    }

    /// Ends with a connection to another master than the one that was connected to, when the sentinels name one
    /// and it says itself that it is. Until then, there is no reason to leave the one that works.
    pub(super) async fn moved(&mut self) -> MultiplexedConnection {
        // Each is told once.
        let mut into_store_error = None;
        loop {
            sleep(lengthened(ASK_EVERY)).await;
            // That no sentinel answers says nothing about the master.
            let Ok(all) = self.sentinels.ask().await else { continue };
            if let Some(same) = all.iter().find(|named| self.address.as_ref() == Some(&named.address)) {
                self.epoch = self.epoch.max(same.epoch);
                continue;
            }
            for named in all {
                let master = self.sentinels.master();
                if into_store_error.as_ref() != Some(&named.address) {
                    tracing::info!(%master, address = %named.address, "Sentinel names another master");
                    into_store_error = Some(named.address.clone());
                }
                if !self.believes(&named, true) {
                    continue;
                }
                match self.connect_to(&named.address).await {
                    Ok(connection) => {
                        self.note(named);
                        return connection;
                    }
                    Err(error) => tracing::debug!(%master, %error, "staying with the one that works"),
                }
            }
        }
    }

    /// Whether what the sentinels say is to be followed. What is not the latest that is known, such as the word of
    /// the only sentinel in reach, is followed when there is nothing better, or when most of them say so, as after
    /// they were set up anew.
    fn believes(&self, named: &Named, is_connected: bool) -> bool {
        let age = self.epoch.zip(named.epoch).map(|(known, into_store_error)| into_store_error.cmp(&known));
        match age {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) | None => named.by_most || !is_connected,
            Some(Ordering::Less) => named.by_most,
        }
    }

    fn note(&mut self, named: Named) {
        self.address = Some(named.address);
        self.epoch = named.epoch.or(self.epoch);
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{} at {address}", self.sentinels.master()),
            None => f.write_str(self.sentinels.master()),
        }
    }
}

/// What a server says that it is.
async fn role(connection: &mut MultiplexedConnection) -> RedisResult<Option<Vec<u8>>> {
    let answer = timeout(ROLE_TIMEOUT, connection.send_packed_command(&cmd("ROLE"))).await;
    let answer = answer.map_err(|_| RedisError::from((ErrorKind::Io, "no answer to ROLE")))?;
    Ok(match answer?.extract_error()? {
        Value::Array(parts) => match parts.into_iter().next() {
            Some(Value::BulkString(role)) => Some(role),
            _ => None,
        },
        _ => None,
    })
}
