//! The script's call and its reply; `lua/decide.lua` documents both.

use std::sync::LazyLock;

use ::redis::{Cmd, Value, cmd};
use sha1_smol::Sha1;

use super::ScriptClock;
use crate::{
    clock::Timestamp,
    descriptor::Hits,
    store::key::{Ask, Call, Verdicts},
};

/// The script, composed of the prelude, the algorithms and the decision on top.
const SOURCE: &str = concat!(
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/decide.lua"),
);

/// The name under which Redis knows the script.
static DIGEST: LazyLock<String> = LazyLock::new(|| Sha1::from(SOURCE).digest().to_string());

/// Bytes of the reply's time.
const TIME: usize = 8;

/// Bytes of the reply to one ask.
const OUTCOME: usize = 9;

/// The command that makes the script known.
pub(super) fn load() -> Cmd {
    let mut command = cmd("SCRIPT");
    command.arg("LOAD").arg(SOURCE);
    command
}

/// The command that decides `call`.
pub(super) fn command(key_prefix: &[u8], call: &Call, clock: ScriptClock) -> Cmd {
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
        let mut packed = Vec::with_capacity(cell.asks.len().saturating_mul(30));
        cell.asks.iter().for_each(|ask| pack(&mut packed, ask));
        command.arg(packed);
    }
    command
}

fn pack(packed: &mut Vec<u8>, ask: &Ask) {
    // Every number here is below 2^53, so a double holds it exactly.
    #[allow(clippy::float_arithmetic)] // A sign changes no digits.
    let hits = match ask.hits {
        Hits::Peek => 0.0,
        Hits::Charge(amount) => amount.get() as f64,
        Hits::Refund(amount) => -(amount.get() as f64),
    };
    packed.extend_from_slice(ask.record.as_bytes());
    packed.extend_from_slice(&f64::to_le_bytes(hits));
    for parameter in ask.policy.script_parameters() {
        packed.extend_from_slice(&f64::to_le_bytes(parameter as f64));
    }
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
        if outcomes.len() != cell.asks.len().checked_mul(OUTCOME)? {
            return None;
        }
        for (ask, outcome) in cell.asks.iter().zip(outcomes.chunks_exact(OUTCOME)) {
            let (admitted, words) = outcome.split_first()?;
            let state = read_words(words)?;
            verdicts.push((ask.descriptor, ask.policy.verdict(state, now, ask.hits, *admitted == 1)));
        }
    }
    Some(verdicts)
}

fn read_time(bytes: &[u8]) -> Option<Timestamp> {
    let [seconds, micros] = (bytes.len() == TIME).then(|| read_words(bytes)).flatten()?;
    let whole = u64::from(seconds).saturating_mul(1_000_000);
    Some(Timestamp::from_micros(whole.saturating_add(u64::from(micros))))
}

fn read_words(bytes: &[u8]) -> Option<[u32; 2]> {
    let (first, second) = bytes.split_first_chunk::<4>()?;
    Some([u32::from_le_bytes(*first), u32::from_le_bytes(second.try_into().ok()?)])
}
