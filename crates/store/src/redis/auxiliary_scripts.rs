//! Scripts other than the one that decides requests, on the same servers; `lua/utilization.lua` among them.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Cmd, Value, cmd};
use sha1_smol::Sha1;
use tokio::time::{Instant, timeout_at};
use tollgate_core::shedding::{SheddingPolicy, SheddingReading, UtilizationSums};

use super::{
    RedisStore, ScriptClock, Topology,
    error::{self, SendError},
};
use crate::{StoreError, after, key::CellKey};

/// Sums of reported utilization, which the instances share.
static UTILIZATION: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../../lua/utilization.lua")));

/// Half-lives after which unused sums expire: their weight is next to nothing.
const TTL_HALF_LIVES: u32 = 16;

/// Shortest time to live of the sums.
const MIN_TTL: Duration = Duration::from_secs(60);

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
        let (command, load) = (script.command(keys, arguments), script.load());
        self.execute(slot, &command, &load, time_limit).await
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
        let mut command = cmd("HMGET");
        command.arg(key).arg(fields);
        // This command never gets `NOSCRIPT`, so the command that loads a script is never used.
        self.execute(slot, &command, &command, time_limit).await
    }

    async fn execute(
        &self,
        slot: u16,
        command: &Cmd,
        load: &Cmd,
        time_limit: Duration,
    ) -> Result<Reply, StoreError> {
        let deadline = after(Instant::now(), time_limit);
        let reply = match &self.shared.servers {
            Topology::Cluster(cluster) => cluster.execute(slot, command, load, deadline).await,
            Topology::Single(server) => {
                let executed = server.connection().send_script(command, load);
                timeout_at(deadline, executed).await.unwrap_or(Err(SendError::Timeout))
            }
        };
        reply.and_then(Reply::of).map_err(|error| error::into_script_error(error, time_limit))
    }
}

/// Adds the sums of one interval to those of all instances under `key`, and returns these.
///
/// # Errors
/// See [`StoreError`]. After [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether they were
/// added; they are not to be added again.
pub async fn add_utilization(
    store: &RedisStore,
    key: &CellKey,
    policy: &SheddingPolicy,
    interval: &UtilizationSums,
    time_limit: Duration,
) -> Result<SheddingReading, StoreError> {
    let ttl = policy.half_life.saturating_mul(TTL_HALF_LIVES).max(policy.stale_after).max(MIN_TTL);
    let UtilizationSums { weight, utilization, passed, requested: [critical, high, default, low] } = interval;
    let numbers = [weight, utilization, passed, critical, high, default, low].map(f64::to_string);
    let times = [policy.half_life.as_micros().to_string(), ttl.as_millis().to_string()];
    let fixed = match store.clock {
        ScriptClock::Server => None,
        ScriptClock::Fixed(now) => Some(now.as_micros().to_string()),
    };
    let arguments = times.iter().chain(&numbers).chain(&fixed);
    let arguments: Vec<&[u8]> = arguments.map(String::as_bytes).collect();
    let name = [&store.shared.options.key_prefix, key.as_bytes()].concat();
    let reply = store.run(&UTILIZATION, key.slot(), &[name], &arguments, time_limit).await?;
    read_utilization(&reply).ok_or(StoreError::MalformedReply)
}

fn read_utilization(reply: &Reply) -> Option<SheddingReading> {
    let Reply::List(parts) = reply else { return None };
    let number = |part: &Reply| match part {
        Reply::Bytes(bytes) => {
            std::str::from_utf8(bytes).ok()?.parse::<f64>().ok().filter(|number| number.is_finite())
        }
        _ => None,
    };
    let numbers: Option<Vec<f64>> = parts.iter().map(number).collect();
    let [age, weight, utilization, passed, critical, high, default, low] = *numbers?.first_chunk()?;
    let requested = [critical, high, default, low];
    let sums = UtilizationSums { weight, utilization, passed, requested };
    // Whole microseconds; a cast saturates.
    let report_age = (age >= 0.0).then(|| Duration::from_micros(age as u64));
    Some(SheddingReading { sums, report_age })
}
