//! Sums of reported utilization, which the instances share; `lua/utilization.lua` adds them up.

use std::{sync::LazyLock, time::Duration};

use tollgate_core::shedding::{SheddingPolicy, SheddingReading, UtilizationSums};

use super::{RedisStore, Reply, Script, ScriptClock};
use crate::{StoreError, key::CellKey};

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../../lua/utilization.lua")));

/// Half-lives after which unused sums expire: their weight is next to nothing.
const TTL_HALF_LIVES: u32 = 16;

/// Shortest time to live of the sums.
const MIN_TTL: Duration = Duration::from_secs(60);

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
    let reply = store.run(&SCRIPT, key.slot(), &[name], &arguments, time_limit).await?;
    read(&reply).ok_or(StoreError::MalformedReply)
}

fn read(reply: &Reply) -> Option<SheddingReading> {
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
