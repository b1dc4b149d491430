//! Packing of requests into the script's arguments.

use ::redis::{Cmd, cmd};
use tollgate_core::algorithm::{Charging, Prefetch, RegionShare, budget::OPERATION_BIT};
use tollgate_core::ban::{BanCheck, BanEffect};
use tollgate_core::{clock::Timestamp, descriptor::Hits};

use super::*;
use crate::redis::store_clock::StoreClock;
use crate::request::{Cell, Check, Veto};

/// The command that decides `runs`, in order, by the clock of the server or at a fixed time. Its time by `clock` is about the
/// server's.
pub(crate) fn command<'a>(
    key_prefix: &[u8],
    runs: impl Iterator<Item = Run<'a>> + Clone,
    keys: CommandKeys,
    fixed: Option<Timestamp>,
    clock: &StoreClock,
) -> Cmd {
    let store_time = || fixed.unwrap_or_else(|| clock.estimate());
    let mut command = cmd("EVALSHA");
    let cells = runs.clone().flat_map(|run| &run.request.cells);
    let are_declared = keys != CommandKeys::AnySlotOfNode;
    command.arg(&keys.script().digest).arg(if are_declared { cells.clone().count() } else { 0 });
    if are_declared {
        add_keys(&mut command, key_prefix, cells.clone());
    }
    match fixed {
        None => command.arg(""),
        Some(time) => command.arg(time.as_micros()),
    };
    let mut packed = Vec::new();
    for run in runs {
        // The fast path of the script does not end bans.
        let ends_ban = |check: &Check| check.applied_ban().is_some_and(|ban| ban.effect.ends());
        let is_special = run.request.checks().any(|check| special_role(check) > 0 || ends_ban(check))
            || run.reported.iter().any(|hits| *hits > 0);
        let mut prefetches = run.prefetches.iter();
        let mut reported = run.reported.iter();
        let mut call_keys = u16::try_from(run.request.cells.len()).unwrap_or(u16::MAX);
        for cell in &run.request.cells {
            packed.clear();
            packed.reserve(cell.checks.len().saturating_mul(CHECK_BYTES).saturating_add(CALL_BYTES));
            packed.extend_from_slice(&call_keys.to_le_bytes());
            packed.extend_from_slice(&run.times.to_le_bytes());
            pack_cell(&mut packed, cell, run.request.charging, is_special, &mut prefetches, &store_time);
            let ban_count = pack_bans(&mut packed, cell, &mut reported);
            pack_shares(&mut packed, cell, ban_count);
            command.arg(packed.as_slice());
            // The other cells belong to the same request.
            call_keys = 0;
        }
    }
    if !are_declared {
        add_keys(&mut command, key_prefix, cells);
    }
    command
}

fn add_keys<'a>(command: &mut Cmd, key_prefix: &[u8], cells: impl Iterator<Item = &'a Cell>) {
    for cell in cells {
        match key_prefix {
            [] => command.arg(cell.key.as_bytes()),
            prefix => command.arg([prefix, cell.key.as_bytes()].concat()),
        };
    }
}

fn pack_cell<'a>(
    packed: &mut Vec<u8>,
    cell: &Cell,
    charging: Charging,
    is_special: bool,
    prefetches: &mut impl Iterator<Item = &'a Prefetch>,
    store_time: &impl Fn() -> Timestamp,
) {
    let is_tail = |check: &Check| check.applied_ban().is_some() || effective_share(check).is_some();
    let has_tail = cell.checks.iter().any(is_tail);
    for check in &cell.checks {
        let role = match (charging, check.sync) {
            (Charging::Independent, _) if check.counting(charging) == Charging::Independent => {
                ROLE_INDEPENDENT
            }
            (Charging::Independent, _) => ROLE_PASSING_ONLY,
            (Charging::AllOrNone, _) => match check.effective_veto() {
                Veto::Counted if check.counting(charging) == Charging::Independent => ROLE_VETO_COUNTED,
                Veto::Alone | Veto::Counted => ROLE_VETO,
                Veto::Never | Veto::AcrossTags => ROLE_NO_VETO,
                Veto::WithQuotas => ROLE_QUOTA,
                Veto::Always => ROLE_ALWAYS_VETO,
            },
        };
        let role = match check.applied_ban() {
            Some(_) => role | ROLE_HAS_BAN,
            None if has_tail => role | ROLE_BEFORE_TAIL,
            None => role,
        };
        packed.extend_from_slice(check.record.as_bytes());
        let special = special_role(check);
        packed.push(match (special, is_special) {
            (0, false) => role,
            (0, true) => role | ROLE_BESIDE_SPECIAL,
            (special, _) => role | special,
        });
        if check.policy.is_budget() {
            pack_budget(packed, check, store_time);
            prefetches.next();
            continue;
        }
        packed.extend_from_slice(&f64::to_le_bytes(signed_hits(check)));
        for parameter in check.policy.script_parameters(store_time) {
            packed.extend_from_slice(&pack_parameter(parameter));
        }
        let prefetch = prefetches.next().and_then(|prefetch| effective_prefetch(check, *prefetch));
        packed.extend_from_slice(&prefetch.map_or_else(|| pack_extra(check), pack_prefetch));
    }
}

/// The part of a check's role that the fast path of the script does not have; 0 for an ordinary check.
fn special_role(check: &Check) -> u8 {
    let bound = if check.policy.has_bound() { ROLE_HAS_BOUND } else { 0 };
    let overdraws = if is_overdraft(check) { ROLE_OVERDRAWS } else { 0 };
    bound | overdraws
}

fn is_overdraft(check: &Check) -> bool {
    check.hits.is_overdraft() && !check.policy.algorithm().holds_permits()
}

/// Signed hits for the script: charged above 0, refunded below 0.
#[allow(clippy::float_arithmetic)] // A sign changes no digits.
fn signed_hits(check: &Check) -> f64 {
    match check.hits {
        Hits::Peek => 0.0,
        Hits::Charge(amount) | Hits::Overdraw(amount) | Hits::Acquire { amount, .. } => amount.get() as f64,
        Hits::Refund(amount) | Hits::RefundCharge { amount, .. } => -(amount.get() as f64),
        Hits::Release(_) | Hits::Settle { .. } if check.policy.algorithm().holds_permits() => -1.0,
        Hits::Release(_) | Hits::Settle { .. } => 0.0,
    }
}

/// The last field of a check: bound, lease, time of the undone charge, or minimum interval.
fn pack_extra(check: &Check) -> [u8; 8] {
    if special_role(check) > 0 {
        return pack_number(check.policy.script_bound());
    }
    let is_lease = check.policy.algorithm().holds_permits();
    match check.hits {
        Hits::Acquire { lease, .. } | Hits::Release(lease) | Hits::Settle { lease, .. } if is_lease => {
            lease.to_bytes()
        }
        // Zeros would mean a refund without the time of its charge.
        Hits::RefundCharge { made_at, .. } if !is_lease => {
            pack_number(check.policy.script_charge_time(made_at).as_micros().max(1))
        }
        Hits::Charge(_) | Hits::Overdraw(_) | Hits::Acquire { .. } => {
            pack_number(check.policy.script_spacing())
        }
        Hits::Peek | Hits::Refund(_) | Hits::RefundCharge { .. } | Hits::Release(_) | Hits::Settle { .. } => {
            [0; 8]
        }
    }
}

/// The prefetch, if the check allows one, in which case the script replies with its result.
pub(super) fn effective_prefetch(check: &Check, prefetch: Prefetch) -> Option<Prefetch> {
    let is_possible =
        check.hits.charged() > 0 && !check.policy.algorithm().has_own_key() && special_role(check) == 0;
    (is_possible && prefetch.max_tokens > 0).then_some(prefetch)
}

fn pack_prefetch(prefetch: Prefetch) -> [u8; 8] {
    let [a, b, c, d] = prefetch.max_tokens.to_le_bytes();
    let ([e, f], [g, h]) = (prefetch.share.to_le_bytes(), prefetch.hold_millis.to_le_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Every parameter is below 2^53, so a double is exact.
pub(crate) const fn pack_parameter(number: i64) -> [u8; 8] {
    f64::to_le_bytes(number as f64)
}

/// Every number here is below 2^53, so a double is exact.
const fn pack_number(number: u64) -> [u8; 8] {
    f64::to_le_bytes(number as f64)
}

/// Appends hits, parameters and the last field of a check.
#[allow(clippy::float_arithmetic)] // A sign changes no digits.
fn pack_budget(packed: &mut Vec<u8>, check: &Check, store_time: impl FnOnce() -> Timestamp) {
    let number = |number: u64| number as f64;
    let none = [0; 8];
    let (operation, signed, extra) = match check.hits {
        Hits::Peek => (BUDGET_CHARGE, 0.0, none),
        Hits::Charge(amount) | Hits::Overdraw(amount) => (BUDGET_CHARGE, number(amount.get()), none),
        Hits::Refund(amount) => (BUDGET_CHARGE, -number(amount.get()), none),
        // Zeros would mean a refund without the time of its charge.
        Hits::RefundCharge { amount, made_at } => {
            (BUDGET_CHARGE, -number(amount.get()), pack_number(made_at.as_micros().max(1)))
        }
        Hits::Acquire { amount, lease } => (BUDGET_RESERVE, number(amount.get()), lease.to_bytes()),
        Hits::Settle { lease, used } => (BUDGET_SETTLE, number(used.min(Hits::MAX)), lease.to_bytes()),
        Hits::Release(lease) => (BUDGET_CANCEL, 0.0, lease.to_bytes()),
    };
    let [limit, terms] = check.policy.script_parameters(store_time);
    packed.extend_from_slice(&f64::to_le_bytes(signed));
    packed.extend_from_slice(&pack_parameter(limit));
    packed.extend_from_slice(&pack_parameter(terms | (i64::from(operation) << OPERATION_BIT)));
    packed.extend_from_slice(&extra);
}

/// Packs the bans of a cell after its checks, takes what is reported of each check, and returns their number.
fn pack_bans<'a>(packed: &mut Vec<u8>, cell: &Cell, reported: &mut impl Iterator<Item = &'a u16>) -> u16 {
    let mut count = 0_u16;
    for check in &cell.checks {
        let hits = reported.next().copied().unwrap_or_default();
        if let Some(ban) = check.applied_ban() {
            pack_ban(packed, &ban, hits);
            count = count.saturating_add(1);
        }
    }
    count
}

fn pack_ban(packed: &mut Vec<u8>, BanCheck { policy, effect }: &BanCheck, reported: u16) {
    packed.extend_from_slice(&policy.threshold.to_le_bytes());
    packed.extend_from_slice(&policy.interval.to_le_bytes());
    for number in [policy.duration, policy.max_duration, policy.forgive, policy.grain] {
        packed.extend_from_slice(&number.to_le_bytes());
    }
    packed.extend_from_slice(&reported.to_le_bytes());
    packed.push(policy.max_level());
    packed.push(match effect {
        BanEffect::Watch => BAN_WATCH,
        BanEffect::Enforce => BAN_ENFORCE,
        BanEffect::Lift => BAN_LIFT,
        BanEffect::Forgive => BAN_FORGIVE,
    });
}

/// The share of a check's region, if the limit may be lent.
pub(super) fn effective_share(check: &Check) -> Option<&RegionShare> {
    check.share.as_ref().filter(|_| check.policy.can_be_lent())
}

/// Packs the shares of a cell after its checks and bans, each with the number of its check, and ends the argument with
/// their number and that of the bans.
fn pack_shares(packed: &mut Vec<u8>, cell: &Cell, bans: u16) {
    let mut count = 0_u16;
    for (at, check) in (0_u16..).zip(&cell.checks) {
        if let Some(share) = effective_share(check) {
            packed.extend_from_slice(&at.to_le_bytes());
            packed.extend_from_slice(&pack_share(share));
            count = count.saturating_add(1);
        }
    }
    if count > 0 {
        packed.extend_from_slice(&count.to_le_bytes());
        packed.extend_from_slice(&(bans | HAS_SHARES).to_le_bytes());
    } else if bans > 0 {
        packed.extend_from_slice(&bans.to_le_bytes());
    }
}

/// The share as the scripts read it: the hits of the region, those of the whole limit (4 bytes each), and the ticks in
/// which a bucket emits the latter (a double).
fn pack_share(share: &RegionShare) -> [u8; 16] {
    let mut packed = [0; 16];
    // Below 2^53, so a double is exact.
    let parts = share.base.to_le_bytes().into_iter().chain(share.limit.get().to_le_bytes());
    let parts = parts.chain(f64::to_le_bytes(share.refill as f64));
    packed.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    packed
}
