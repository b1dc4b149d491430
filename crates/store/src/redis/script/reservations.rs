//! Packing of checks of budgets, and their part of the reply; `lua/decide/reservations.lua` documents both.

use tollgate_core::{
    algorithm::{Budget, LedgerSummary},
    descriptor::Hits,
};

use super::pack::{pack_number, pack_parameter};

/// Position of the operation in the second parameter.
const OPERATION_BIT: u32 = 46;

/// Operations.
const CHARGE: i64 = 0;
const RESERVE: i64 = 1;
const SETTLE: i64 = 2;
const CANCEL: i64 = 3;

/// Appends hits, parameters and the last field of a check.
#[allow(clippy::float_arithmetic)] // A sign changes no digits.
pub(super) fn pack(packed: &mut Vec<u8>, budget: &Budget, hits: Hits) {
    let number = |number: u64| number as f64;
    let none = [0; 8];
    let (operation, signed, extra) = match hits {
        Hits::Peek => (CHARGE, 0.0, none),
        Hits::Charge(amount) | Hits::Overdraw(amount) => (CHARGE, number(amount.get()), none),
        Hits::Refund(amount) => (CHARGE, -number(amount.get()), none),
        // Zeros would mean a refund without the time of its charge.
        Hits::RefundCharge { amount, made_at } => {
            (CHARGE, -number(amount.get()), pack_number(made_at.as_micros().max(1)))
        }
        Hits::Acquire { amount, lease } => (RESERVE, number(amount.get()), lease.to_bytes()),
        Hits::Settle { lease, used } => (SETTLE, number(used.min(Hits::MAX)), lease.to_bytes()),
        Hits::Release(lease) => (CANCEL, 0.0, lease.to_bytes()),
    };
    let [limit, terms] = budget.script_parameters();
    packed.extend_from_slice(&f64::to_le_bytes(signed));
    packed.extend_from_slice(&pack_parameter(limit));
    packed.extend_from_slice(&pack_parameter(terms.saturating_add(operation << OPERATION_BIT)));
    packed.extend_from_slice(&extra);
}

/// Bit of the first byte of a verdict: whether the lease of a reservation is a known one that does not hold its hits.
const HAS_CONFLICT: u8 = 8;

/// The summary of a budget in the reply after the first byte of a verdict, and the rest.
pub(super) fn read(outcome: u8, bytes: &[u8]) -> Option<(LedgerSummary, &[u8])> {
    let (used, rest) = bytes.split_first_chunk::<8>()?;
    let (held, rest) = rest.split_first_chunk::<8>()?;
    let (ends, rest) = rest.split_first_chunk::<4>()?;
    // Whole numbers below 2^53.
    let [used, held] = [used, held].map(|bytes| f64::from_le_bytes(*bytes) as u64);
    let has_conflict = outcome & HAS_CONFLICT > 0;
    Some((LedgerSummary { used, held, ends: u32::from_le_bytes(*ends), has_conflict }, rest))
}
