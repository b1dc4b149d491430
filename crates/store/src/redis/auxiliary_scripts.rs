//! Scripts other than the one that decides requests, on the same servers: `lua/utilization.lua`, and
//! `lua/loans/transaction.lua`, which reads and writes the loans of a counter.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Cmd, Value, cmd};
use tokio::time::{Instant, timeout_at};
use tollgate_core::algorithm::{Loan, LoanTotals};
use tollgate_shedding::{SheddingPolicy, SheddingReading, UtilizationSums};

use super::error::{self, SendError};
use super::script::{self, Script};
use super::{RedisStore, Topology};
use crate::loans::{Change, SharedCounter, Snapshot};
use crate::{StoreError, after, key::CellKey, store::LoanStep};

/// Sums of reported utilization, which the instances share.
static UTILIZATION: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../../lua/utilization.lua")));

/// Half-lives after which unused sums expire: their weight is next to nothing.
const TTL_HALF_LIVES: u32 = 16;

/// Shortest time to live of the sums.
const MIN_TTL: Duration = Duration::from_secs(60);

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

impl Reply {
    fn of(value: Value) -> Result<Self, SendError> {
        Ok(match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Integer(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) => Self::Bytes(text.into_bytes()),
            Value::Okay => Self::Bytes(b"OK".to_vec()),
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

    /// Runs a plain command with its arguments, whose keys are of this slot, on the owner of that slot. Costs the server less
    /// than a script.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_command(
        &self,
        slot: u16,
        name: &str,
        arguments: &[&[u8]],
        time_limit: Duration,
    ) -> Result<Reply, StoreError> {
        let command = cmd(name).arg(arguments).clone();
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
                let executed = server.connection.send_script(command, load);
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
    let fixed = store.fixed.map(|now| now.as_micros().to_string());
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

/// Script of loans between regions.
static LOANS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(script::with_numbers(concat!(
        include_str!("../../../../lua/decide/prelude.lua"),
        include_str!("../../../../lua/decide/entry.lua"),
        include_str!("../../../../lua/decide/fixed_window.lua"),
        include_str!("../../../../lua/decide/sliding_window.lua"),
        include_str!("../../../../lua/decide/token_bucket.lua"),
        include_str!("../../../../lua/decide/keys.lua"),
        include_str!("../../../../lua/decide/fast_path.lua"),
        include_str!("../../../../lua/decide/packed_records.lua"),
        include_str!("../../../../lua/decide/segmented_cells.lua"),
        include_str!("../../../../lua/decide/loans.lua"),
        include_str!("../../../../lua/loans/transaction.lua"),
    )))
});

/// Attempts of a transaction whose counter changes in the meantime.
const MAX_ATTEMPTS: u32 = 8;

/// See [`CounterStore::with_loans`](crate::CounterStore::with_loans).
pub(super) async fn with_loans(
    store: &RedisStore,
    counter: &SharedCounter,
    time_limit: Duration,
    step: &mut LoanStep<'_>,
) -> Result<(), StoreError> {
    let until = after(Instant::now(), time_limit);
    let left = || until.duration_since(Instant::now());
    let mut snapshot = transact(store, counter, None, left()).await?.ok_or(StoreError::MalformedReply)?;
    for _ in 0..MAX_ATTEMPTS {
        let Some(change) = step(&snapshot)? else { return Ok(()) };
        match transact(store, counter, Some((&snapshot, &change)), left()).await? {
            None => return Ok(()),
            Some(changed) => snapshot = changed,
        }
    }
    Err(StoreError::Declined("the counter changes too often for its loans to change".into()))
}

/// Writes a change, unless the counter is not as it was read; without a change, reads it. Returns what it is, unless the
/// change was written. A repeated write changes nothing, since its own first attempt made the ledger another one.
async fn transact(
    store: &RedisStore,
    counter: &SharedCounter,
    change: Option<(&Snapshot, &Change)>,
    time_limit: Duration,
) -> Result<Option<Snapshot>, StoreError> {
    let prefix = &store.shared.options.key_prefix;
    let names = [counter.cell.as_bytes(), counter.cell.clone().loans(counter.record).as_bytes()]
        .map(|name| [prefix, name].concat());
    let clock = &store.shared.options.store_clock;
    let time = store.fixed.map_or_else(String::new, |now| now.as_micros().to_string());
    let mut packed = counter.record.as_bytes().to_vec();
    for parameter in counter.policy.script_parameters(|| store.fixed.unwrap_or_else(|| clock.estimate())) {
        packed.extend_from_slice(&script::pack_parameter(parameter));
    }
    let written = change.map_or_else(Vec::new, |(_, change)| pack(change));
    let (before, after) = change.map_or(("", ""), |(snapshot, change)| (&*snapshot.ledger, &*change.ledger));
    let arguments: [&[u8]; 5] = [time.as_bytes(), &packed, &written, before.as_bytes(), after.as_bytes()];
    let reply = store.run(&LOANS, counter.cell.slot(), &names, &arguments, time_limit).await?;
    match &reply {
        Reply::List(parts) => match parts.as_slice() {
            [Reply::Integer(1)] => Ok(None),
            [Reply::Integer(0), Reply::Bytes(ledger), Reply::Bytes(numbers)] => {
                read(ledger, numbers).map(Some).ok_or(StoreError::MalformedReply)
            }
            _ => Err(StoreError::MalformedReply),
        },
        Reply::Nil | Reply::Integer(_) | Reply::Bytes(_) => Err(StoreError::MalformedReply),
    }
}

fn pack(change: &Change) -> Vec<u8> {
    let Change { label, most, totals: LoanTotals { borrowed, lent }, full_later, ttl_millis, .. } = change;
    // Below 2^53, so a double is exact.
    let double = |number: u64| f64::to_le_bytes(number as f64);
    let most = most.map_or_else(|| f64::to_le_bytes(-1.0), double);
    let mut packed = Vec::with_capacity(44);
    packed.extend_from_slice(&label.to_le_bytes());
    packed.extend_from_slice(&most);
    for word in [borrowed.until, borrowed.hits, lent.until, lent.hits] {
        packed.extend_from_slice(&word.to_le_bytes());
    }
    packed.extend_from_slice(&double(*full_later));
    packed.extend_from_slice(&double(*ttl_millis));
    packed
}

fn read(ledger: &[u8], numbers: &[u8]) -> Option<Snapshot> {
    let (words, rest) = numbers.as_chunks::<4>();
    let words: &[[u8; 4]; 10] = rest.is_empty().then_some(words)?.try_into().ok()?;
    let [seconds, micros, _, a, b, c, borrowed_until, borrowed, lent_until, lent] =
        words.map(u32::from_le_bytes);
    let loan = |hits, until| Loan { hits, until };
    Some(Snapshot {
        now: script::time_of(seconds, micros),
        state: [a, b, c],
        totals: LoanTotals { borrowed: loan(borrowed, borrowed_until), lent: loan(lent, lent_until) },
        ledger: String::from_utf8(ledger.to_vec()).ok()?,
    })
}
