//! The script's call and its reply; `lua/ask.lua` documents both.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Cmd, Value, cmd};
use sha1_smol::Sha1;

use super::ScriptClock;
use crate::{
    algorithm::{Algorithm, Charging, Queued, Standing},
    clock::Timestamp,
    descriptor::Hits,
    store::call::{Ask, Call, Verdicts},
};

/// The script, composed of its parts in the order in which they need each other.
const SOURCE: &str = concat!(
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/ask.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/usual.lua"),
    include_str!("../../../lua/sliding_window_log.lua"),
    include_str!("../../../lua/concurrency.lua"),
    include_str!("../../../lua/cell.lua"),
    include_str!("../../../lua/queue.lua"),
    include_str!("../../../lua/decide.lua"),
);

/// The name under which Redis knows the script.
static DIGEST: LazyLock<String> = LazyLock::new(|| Sha1::from(SOURCE).digest().to_string());

/// The command that makes the script known.
pub(super) fn load() -> Cmd {
    let mut command = cmd("SCRIPT");
    command.arg("LOAD").arg(SOURCE);
    command
}

#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) call: &'a Call,
    pub(super) times: u16,
    pub(super) wishes: &'a [crate::algorithm::Wish],
}

impl<'a> Run<'a> {
    pub(super) const fn once(call: &'a Call) -> Self {
        Self { call, times: 1, wishes: &[] }
    }
}

pub(super) struct Outcome {
    pub(super) verdicts: smallvec::SmallVec<[Verdicts; 1]>,
    pub(super) reserved: smallvec::SmallVec<[u32; 2]>,
}

pub(super) fn command<'a>(
    key_prefix: &[u8],
    mut runs: impl Iterator<Item = Run<'a>>,
    clock: ScriptClock,
) -> Cmd {
    command_one(key_prefix, runs.next().unwrap().call, clock)
}

pub(super) fn read_replies<'a>(
    mut runs: impl Iterator<Item = Run<'a>>,
    reply: Value,
) -> Option<Vec<Result<Outcome, ::redis::RedisError>>> {
    let verdicts = read_reply(runs.next()?.call, &reply)?;
    Some(vec![Ok(Outcome { verdicts: [verdicts].into_iter().collect(), reserved: Default::default() })])
}

/// The command that decides `call`.
pub(super) fn command_one(key_prefix: &[u8], call: &Call, clock: ScriptClock) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(DIGEST.as_str()).arg(call.cells.len());
    for cell in &call.cells {
        match key_prefix {
            [] => command.arg(cell.key.as_bytes()),
            prefix => command.arg([prefix, cell.key.as_bytes()].concat()),
        };
    }
    match clock {
        ScriptClock::Server => command.arg(""),
        ScriptClock::Fixed(time) => command.arg(time.as_micros()),
    };
    for cell in &call.cells {
        let mut packed = Vec::with_capacity(cell.asks.len().saturating_mul(39));
        cell.asks.iter().for_each(|ask| pack(&mut packed, ask, call.charging));
        command.arg(packed);
    }
    command
}

fn pack(packed: &mut Vec<u8>, ask: &Ask, charging: Charging) {
    let role = match (charging, ask.is_veto()) {
        (Charging::EachForItself, _) => 0,
        (Charging::AllOrNone, true) => 1,
        (Charging::AllOrNone, false) => 2,
    };
    packed.extend_from_slice(ask.record.as_bytes());
    packed.push(role);
    packed.extend_from_slice(&f64::to_le_bytes(signed(ask)));
    for parameter in ask.policy.script_parameters() {
        packed.extend_from_slice(&number(parameter));
    }
    packed.extend_from_slice(&extra(ask));
}

/// Hits as the script takes them: above 0 are charged, below 0 given back.
#[allow(clippy::float_arithmetic)] // A sign changes no digits.
fn signed(ask: &Ask) -> f64 {
    match ask.hits {
        Hits::Peek => 0.0,
        Hits::Charge(amount) | Hits::Acquire { amount, .. } => amount.get() as f64,
        Hits::Refund(amount) | Hits::Undo { amount, .. } => -(amount.get() as f64),
        Hits::Release(_) if ask.policy.algorithm() == Algorithm::Concurrency => -1.0,
        Hits::Release(_) => 0.0,
    }
}

/// What the ask says beside hits and parameters.
fn extra(ask: &Ask) -> [u8; 8] {
    let is_lease = ask.policy.algorithm() == Algorithm::Concurrency;
    match ask.hits {
        Hits::Acquire { lease, .. } | Hits::Release(lease) if is_lease => lease.to_bytes(),
        // Zeros would say that it is no undo.
        Hits::Undo { made_at, .. } if !is_lease => number(made_at.as_micros().max(1)),
        Hits::Charge(_) | Hits::Acquire { .. } => number(micros(ask.policy.min_interval())),
        Hits::Peek | Hits::Refund(_) | Hits::Undo { .. } | Hits::Release(_) => [0; 8],
    }
}

/// Every number here is below 2^53, so a double holds it exactly.
const fn number(number: u64) -> [u8; 8] {
    f64::to_le_bytes(number as f64)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What the reply to `call` says; `None` when it is not of the agreed form.
pub(super) fn read_reply(call: &Call, reply: &Value) -> Option<Verdicts> {
    let Value::Array(parts) = reply else { return None };
    let (Value::BulkString(time), cells) = parts.split_first()? else { return None };
    let now = read_time(time)?;
    if cells.len() != call.cells.len() {
        return None;
    }
    let mut verdicts = Verdicts::new();
    for (cell, part) in call.cells.iter().zip(cells) {
        let Value::BulkString(outcomes) = part else { return None };
        let mut rest = outcomes.as_slice();
        for ask in &cell.asks {
            let (admitted, after) = rest.split_first()?;
            let (standing, after) = read_standing(ask.policy.algorithm(), after)?;
            let verdict = ask.policy.verdict(standing, now, ask.hits, *admitted == 1, call.charging);
            verdicts.push((ask.descriptor, verdict));
            rest = after;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    Some(verdicts)
}

/// Where a counter stands, and what comes after that.
fn read_standing(algorithm: Algorithm, bytes: &[u8]) -> Option<(Standing, &[u8])> {
    let (first, rest) = read_word(bytes)?;
    if algorithm.has_own_key() {
        let (wait, rest) = rest.split_first_chunk::<8>()?;
        let (reset, rest) = rest.split_first_chunk::<8>()?;
        let (wait, reset) = (f64::from_le_bytes(*wait), f64::from_le_bytes(*reset));
        // Whole numbers of microseconds; one below zero stands for never.
        let wait = (wait >= 0.0).then_some(Duration::from_micros(wait as u64));
        let reset = Duration::from_micros(reset as u64);
        return Some((Standing::Queued(Queued { used: u64::from(first), wait, reset }), rest));
    }
    let (second, rest) = read_word(rest)?;
    let (third, rest) = match algorithm {
        Algorithm::SlidingWindow => read_word(rest)?,
        _ => (0, rest),
    };
    Some((Standing::Words([first, second, third]), rest))
}

fn read_time(bytes: &[u8]) -> Option<Timestamp> {
    let (seconds, rest) = read_word(bytes)?;
    let (micros, rest) = read_word(rest)?;
    let whole = u64::from(seconds).saturating_mul(1_000_000);
    rest.is_empty().then_some(Timestamp::from_micros(whole.saturating_add(u64::from(micros))))
}

fn read_word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}
