//! Transactions on the loans of a counter in Redis; `lua/loans/transaction.lua` reads and writes.

use std::{sync::LazyLock, time::Duration};

use tokio::time::Instant;
use tollgate_core::algorithm::{Loan, LoanTotals};

use super::{RedisStore, Reply, Script, ScriptClock, script};
use crate::{
    StoreError, after,
    loans::{Change, Loans, SharedCounter, Snapshot},
};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
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
    ))
});

/// Attempts of a transaction whose counter changes in the meantime.
const MAX_ATTEMPTS: u32 = 8;

/// See [`Store::with_loans`](crate::Store::with_loans).
pub(crate) async fn with_loans<T>(
    store: &RedisStore,
    counter: &SharedCounter,
    time_limit: Duration,
    mut step: impl FnMut(&mut Loans) -> T,
) -> Result<T, StoreError> {
    let until = after(Instant::now(), time_limit);
    let left = || until.duration_since(Instant::now());
    let mut snapshot = transact(store, counter, None, left()).await?.ok_or(StoreError::MalformedReply)?;
    for _ in 0..MAX_ATTEMPTS {
        let (result, change) = counter.run(&snapshot, &mut step)?;
        let Some(change) = change else { return Ok(result) };
        match transact(store, counter, Some((&snapshot, &change)), left()).await? {
            None => return Ok(result),
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
    let time = match store.clock {
        ScriptClock::Server => String::new(),
        ScriptClock::Fixed(now) => now.as_micros().to_string(),
    };
    let mut packed = counter.record.as_bytes().to_vec();
    for parameter in
        counter.policy.script_parameters(|| store.shared.options.store_clock.estimate(store.clock))
    {
        packed.extend_from_slice(&script::pack_parameter(parameter));
    }
    let written = change.map_or_else(Vec::new, |(_, change)| pack(change));
    let (before, after) = change.map_or(("", ""), |(snapshot, change)| (&*snapshot.ledger, &*change.ledger));
    let arguments: [&[u8]; 5] = [time.as_bytes(), &packed, &written, before.as_bytes(), after.as_bytes()];
    let reply = store.run(&SCRIPT, counter.cell.slot(), &names, &arguments, time_limit).await?;
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
