//! Scripts other than the one that decides requests, on the same servers.

use std::time::Duration;

use ::redis::{Cmd, Value, cmd};
use sha1_smol::Sha1;
use tokio::time::{Instant, timeout_at};

use super::{RedisStore, connection::SendError, error, topology::Topology};
use crate::StoreError;

/// A script, with the SHA-1 digest that names it in Redis.
#[derive(Clone, Debug)]
pub struct Script {
    source: &'static str,
    digest: String,
}

/// Reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nil.
    Nil,
    /// An integer.
    Integer(i64),
    /// A string, or other bytes.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<Reply>),
}

impl Script {
    /// A script with this source.
    pub fn new(source: &'static str) -> Self {
        Self { source, digest: Sha1::from(source).digest().to_string() }
    }

    fn command(&self, keys: &[Vec<u8>], arguments: &[&[u8]]) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.digest).arg(keys.len()).arg(keys).arg(arguments);
        command
    }

    fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(self.source);
        command
    }
}

impl Reply {
    fn of(value: Value) -> Result<Self, SendError> {
        Ok(match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Integer(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) => Self::Bytes(text.into_bytes()),
            Value::Array(parts) => Self::List(parts.into_iter().map(Self::of).collect::<Result<_, _>>()?),
            _ => return Err(SendError::MalformedReply),
        })
    }
}

impl RedisStore {
    /// Runs a script, whose keys are of one slot, on the owner of that slot. It is sent again only after replies that
    /// rule out an effect.
    ///
    /// # Errors
    /// See [`StoreError`]. After [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether it ran.
    pub async fn run(
        &self,
        script: &Script,
        slot: u16,
        keys: &[Vec<u8>],
        arguments: &[&[u8]],
        time_limit: Duration,
    ) -> Result<Reply, StoreError> {
        let now = Instant::now();
        let deadline = now.checked_add(time_limit).unwrap_or(now);
        let (command, load) = (script.command(keys, arguments), script.load());
        let reply = self.execute(slot, &command, &load, deadline).await;
        reply.and_then(Reply::of).map_err(|error| error::into_script_error(error, time_limit))
    }

    /// Reads fields of a hash, whose key is of this slot, on the owner of that slot. Costs the server less than a
    /// script where there is much to read.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn read_hash(
        &self,
        slot: u16,
        key: &[u8],
        fields: &[&str],
        time_limit: Duration,
    ) -> Result<Reply, StoreError> {
        let now = Instant::now();
        let deadline = now.checked_add(time_limit).unwrap_or(now);
        let mut command = cmd("HMGET");
        command.arg(key).arg(fields);
        // This command never gets `NOSCRIPT`, so the command that loads a script is never used.
        let reply = self.execute(slot, &command, &command, deadline).await;
        reply.and_then(Reply::of).map_err(|error| error::into_script_error(error, time_limit))
    }

    async fn execute(
        &self,
        slot: u16,
        command: &Cmd,
        load: &Cmd,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        match &self.shared.servers {
            Topology::Cluster(cluster) => cluster.execute(slot, command, load, deadline).await,
            Topology::Single(server) => {
                let connection = server.connection();
                let executed = async {
                    match connection.send(command).await {
                        Err(error) if error.is_unknown_script() => {
                            connection.send(load).await?;
                            connection.send(command).await
                        }
                        reply => reply,
                    }
                };
                timeout_at(deadline, executed).await.unwrap_or(Err(SendError::Timeout))
            }
        }
    }
}
