//! Scripts beside the one that decides calls, on the same servers.

use std::time::Duration;

use ::redis::{Cmd, Value, cmd};
use sha1_smol::Sha1;
use tokio::time::{Instant, timeout_at};

use super::{RedisStore, connection::SendError, error, topology::Topology};
use crate::StoreError;

/// A script, and the name that Redis has for it.
#[derive(Clone, Debug)]
pub struct Script {
    source: &'static str,
    digest: String,
}

/// What a script answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    Nil,
    /// A number.
    Integer(i64),
    /// A text, or other bytes.
    Bytes(Vec<u8>),
    /// Several of these.
    List(Vec<Reply>),
}

impl Script {
    /// The script of this text.
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
    /// Runs a script, whose keys are of one slot, on the server that has that one. It is sent again only after answers
    /// that say that nothing was done.
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
        reply.and_then(Reply::of).map_err(|error| error::into_store_error(error, time_limit))
    }

    /// Reads fields of a hash, of a key in this slot, on the server that has that one. Costs the server less than a
    /// script that does so, where there is much to read.
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
        // It is never answered that a script is missing.
        let reply = self.execute(slot, &command, &command, deadline).await;
        reply.and_then(Reply::of).map_err(|error| error::into_store_error(error, time_limit))
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
