//! What the script is asked.

use std::time::Duration;

use ::redis::{Cmd, cmd};

use super::{DIGEST, Run};
use crate::{
    redis::ScriptClock,
    request::{Cell, Check},
};
use tollgate_core::{
    SyncMode,
    algorithm::{Charging, Prefetch},
    descriptor::Hits,
};

/// Bytes that begin what is asked of a key.
const HEADER: usize = 4;

/// Bytes of an ask.
const ASK: usize = 39;

/// The command that decides `runs`, one after the other.
pub(in crate::redis) fn command<'a>(
    key_prefix: &[u8],
    runs: impl Iterator<Item = Run<'a>> + Clone,
    clock: ScriptClock,
) -> Cmd {
    let mut command = cmd("EVALSHA");
    let cells = runs.clone().flat_map(|run| &run.call.cells);
    command.arg(DIGEST.as_str()).arg(cells.clone().count());
    for cell in cells {
        match key_prefix {
            [] => command.arg(cell.key.as_bytes()),
            prefix => command.arg([prefix, cell.key.as_bytes()].concat()),
        };
    }
    match clock {
        ScriptClock::Server => command.arg(""),
        ScriptClock::Fixed(time) => command.arg(time.as_micros()),
    };
    let mut packed = Vec::new();
    for run in runs {
        let mut prefetches = run.prefetches.iter();
        let mut keys = u16::try_from(run.call.cells.len()).unwrap_or(u16::MAX);
        for cell in &run.call.cells {
            packed.clear();
            packed.reserve(cell.checks.len().saturating_mul(ASK).saturating_add(HEADER));
            packed.extend_from_slice(&keys.to_le_bytes());
            packed.extend_from_slice(&run.times.to_le_bytes());
            pack_cell(&mut packed, cell, run.call.charging, &mut prefetches);
            command.arg(packed.as_slice());
            // The others belong to the first.
            keys = 0;
        }
    }
    command
}

fn pack_cell<'a>(
    packed: &mut Vec<u8>,
    cell: &Cell,
    charging: Charging,
    prefetches: &mut impl Iterator<Item = &'a Prefetch>,
) {
    for ask in &cell.checks {
        let role = match (charging, ask.sync) {
            (Charging::Independent, SyncMode::Strict) => 0,
            (Charging::Independent, SyncMode::Leased) => 3,
            (Charging::AllOrNone, _) if ask.is_veto() => 1,
            (Charging::AllOrNone, _) => 2,
        };
        packed.extend_from_slice(ask.record.as_bytes());
        packed.push(role);
        packed.extend_from_slice(&f64::to_le_bytes(signed(ask)));
        for parameter in ask.policy.script_parameters() {
            packed.extend_from_slice(&number(parameter));
        }
        let wish = prefetches.next().and_then(|wish| effective(ask, *wish));
        packed.extend_from_slice(&wish.map_or_else(|| extra(ask), pack_wish));
    }
}

/// Hits as the script takes them: above 0 are charged, below 0 given back.
#[allow(clippy::float_arithmetic)] // A sign changes no digits.
fn signed(ask: &Check) -> f64 {
    match ask.hits {
        Hits::Peek => 0.0,
        Hits::Charge(amount) | Hits::Acquire { amount, .. } => amount.get() as f64,
        Hits::Refund(amount) | Hits::RefundCharge { amount, .. } => -(amount.get() as f64),
        Hits::Release(_) if ask.policy.algorithm().holds_permits() => -1.0,
        Hits::Release(_) => 0.0,
    }
}

/// What the ask says beside hits and parameters.
fn extra(ask: &Check) -> [u8; 8] {
    let is_lease = ask.policy.algorithm().holds_permits();
    match ask.hits {
        Hits::Acquire { lease, .. } | Hits::Release(lease) if is_lease => lease.to_bytes(),
        // Zeros would say that it is no undo.
        Hits::RefundCharge { made_at, .. } if !is_lease => number(made_at.as_micros().max(1)),
        Hits::Charge(_) | Hits::Acquire { .. } => number(micros(ask.policy.min_interval())),
        Hits::Peek | Hits::Refund(_) | Hits::RefundCharge { .. } | Hits::Release(_) => [0; 8],
    }
}

/// The wish, if the ask can have one; the script tells then what came of it.
pub(super) fn effective(ask: &Check, wish: Prefetch) -> Option<Prefetch> {
    let is_possible = ask.hits.charged() > 0 && !ask.policy.algorithm().has_own_key();
    (is_possible && wish.max_tokens > 0).then_some(wish)
}

fn pack_wish(wish: Prefetch) -> [u8; 8] {
    let [a, b, c, d] = wish.max_tokens.to_le_bytes();
    let ([e, f], [g, h]) = (wish.share.to_le_bytes(), wish.hold_millis.to_le_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Every number here is below 2^53, so a double holds it exactly.
const fn number(number: u64) -> [u8; 8] {
    f64::to_le_bytes(number as f64)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
