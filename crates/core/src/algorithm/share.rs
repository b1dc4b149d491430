//! What one of several instances may let pass by itself, while they can't count together.
//!
//! All shares together are at most the limit, but that each instance lets at least one hit pass where the limit is
//! not 0: with fewer hits than instances there is no better share of them.

use std::num::NonZeroU32;

/// A share of a limit.
pub(super) fn share_of(limit: u32, shares: NonZeroU32) -> u32 {
    (limit / shares).max(limit.min(1))
}
