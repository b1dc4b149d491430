//! Bans in the script's arguments and in its reply.

use std::num::NonZeroU8;

use tollgate_core::ban::{Ban, BanCheck, BanEffect};

use crate::request::Cell;

/// Bits of the first byte of a reply.
const IS_ACTIVE: u8 = 1;
const IS_NEW: u8 = 2;

/// Whether a check of the cell has a ban.
pub(super) fn has_bans(cell: &Cell) -> bool {
    cell.checks.iter().any(|check| check.applied_ban().is_some())
}

/// Packs the bans of a cell after its checks, takes what is reported of each check, and returns their number.
pub(super) fn pack<'a>(
    packed: &mut Vec<u8>,
    cell: &Cell,
    reported: &mut impl Iterator<Item = &'a u16>,
) -> u16 {
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
    packed.extend_from_slice(&policy.threshold().to_le_bytes());
    packed.extend_from_slice(&policy.interval().to_le_bytes());
    for number in [policy.duration(), policy.max_duration(), policy.forgive(), policy.grain()] {
        packed.extend_from_slice(&number.to_le_bytes());
    }
    packed.extend_from_slice(&reported.to_le_bytes());
    packed.push(policy.max_level());
    packed.push(match effect {
        BanEffect::Watch => 0,
        BanEffect::Enforce => 1,
        BanEffect::Lift => 2,
        BanEffect::Forgive => 3,
    });
}

/// Reads the active ban of a check, if any, and the rest of the reply; `None` for a malformed one.
pub(super) fn read<'b>(check: &BanCheck, bytes: &'b [u8]) -> Option<(Option<Ban>, &'b [u8])> {
    let (flags, rest) = bytes.split_first()?;
    if flags & IS_ACTIVE == 0 {
        return Some((None, rest));
    }
    let (until, rest) = rest.split_first_chunk::<4>()?;
    let (level, rest) = rest.split_first()?;
    let ban = Ban {
        until: u32::from_le_bytes(*until),
        level: NonZeroU8::new(*level)?,
        is_new: flags & IS_NEW > 0,
        is_enforced: false,
    };
    Some((check.report(Some(ban)), rest))
}
