//! Fill of a bucket across changes of its effective limit.
//!
//! The capacity is a time, so that a bucket of twice the limit refills twice as many tokens in the same time. At an equal
//! fill, a changed limit changes the tokens in proportion.

use crate::{
    fault::{Fault, is_injected},
    terms::Kind,
};

/// Level of the bucket at `micros`, rounded down.
pub(super) fn level(kind: Kind, full_at: u64, micros: u64) -> u64 {
    let step = kind.level_micros();
    if step == 0 {
        return 0;
    }
    kind.full_level().saturating_sub(full_at.saturating_sub(micros).div_ceil(step))
}

/// When the bucket will be full, after its effective limit rose from `before` to `after` by an amount of which `added`
/// came with tokens at the level `brought`, and the rest with none.
pub(super) fn raised(kind: Kind, full_at: u64, micros: u64, change: Raise) -> u64 {
    let Raise { before, after, added, brought } = change;
    let step = kind.level_micros();
    if step == 0 || after <= before || is_injected(Fault::TokensFromNothing) {
        return full_at;
    }
    let full = kind.full_level();
    let own = level(kind, full_at, micros).saturating_mul(before.into());
    let added = added.min(after.saturating_sub(before));
    let new = brought.min(full).saturating_mul(added.into());
    let filled = own.saturating_add(new).checked_div(after.into()).unwrap_or(0);
    // Rounding never fills.
    full_at.max(micros.saturating_add(full.saturating_sub(filled).saturating_mul(step)))
}

/// Rise of an effective limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) added: u32,
    pub(super) brought: u64,
}

impl Raise {
    /// One without tokens.
    pub(super) const fn empty(before: u32, after: u32) -> Self {
        Self { before, after, added: 0, brought: 0 }
    }
}
