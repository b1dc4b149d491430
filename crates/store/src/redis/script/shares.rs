//! Shares of regions in the script's arguments and in its reply.

use tollgate_core::algorithm::RegionShare;

use crate::request::{Cell, Check};

/// Added to the number of bans that follow the checks of a cell: shares follow these.
const HAS_SHARES: u16 = 1 << 15;

/// The share of a check's region, if the limit may be lent.
pub(super) fn effective_share(check: &Check) -> Option<&RegionShare> {
    check.share.as_ref().filter(|_| check.policy.can_be_lent())
}

/// Whether a check of the cell has a share.
pub(super) fn has_shares(cell: &Cell) -> bool {
    cell.checks.iter().any(|check| effective_share(check).is_some())
}

/// Packs the shares of a cell after its checks and bans, each with the number of its check, and ends the argument with
/// their number and that of the bans.
pub(super) fn pack(packed: &mut Vec<u8>, cell: &Cell, bans: u16) {
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
    let parts = share.base().to_le_bytes().into_iter().chain(share.limit().get().to_le_bytes());
    let parts = parts.chain(f64::to_le_bytes(share.refill() as f64));
    packed.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    packed
}
