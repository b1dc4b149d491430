//! Enforced bans that this worker saw, which stand until their end while the server is away.

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_core::{algorithm::Verdict, ban::BanEffect};

use super::local::TwoGenerationMap;
use crate::request::{Cell, Check, TagRequest, Verdicts};

/// A verdict under a ban, and when it was received.
type Known = Option<(Verdict, Instant)>;

/// Enforced bans by counter, bounded in number. The lock is uncontended.
#[derive(Debug, Default)]
pub(super) struct KnownBans {
    verdicts: Mutex<TwoGenerationMap<Known>>,
}

impl KnownBans {
    /// Records the bans in the verdicts of a request, and forgets those that have ended.
    pub(super) fn learn(&self, request: &TagRequest, verdicts: &Verdicts) {
        if request.checks().all(|check| check.ban.is_none()) {
            return;
        }
        let mut known = self.verdicts.lock();
        for ((cell, check), (_, verdict)) in request.checks_with_cells().zip(verdicts) {
            let is_banned = verdict.ban.is_some_and(|ban| ban.is_enforced);
            let entry = match is_banned {
                true => known.get_or_insert(&cell.key, check.record, || None),
                false if check.ban.is_none() || known.is_empty() => None,
                false => known.get(&cell.key, check.record),
            };
            if let Some(entry) = entry {
                *entry = is_banned.then(|| (*verdict, Instant::now()));
            }
        }
        drop(known.take_evicted());
    }

    /// The denial of a check whose counter is known to be banned.
    pub(super) fn verdict(&self, cell: &Cell, check: &Check, now: Instant) -> Option<Verdict> {
        let is_enforced = check.ban.is_some_and(|ban| ban.effect == BanEffect::Enforce);
        if !is_enforced || !check.hits.may_be_withheld() {
            return None;
        }
        let (verdict, known_at) = (*self.verdicts.lock().get(&cell.key, check.record)?)?;
        let verdict = verdict.later(now.saturating_duration_since(known_at));
        let ban = verdict.ban.map(tollgate_core::ban::Ban::known);
        let over = check.hits.charged();
        (!verdict.retry_after.is_zero()).then_some(Verdict { ban, over, ..verdict })
    }
}
