//! Replies by which counters are decided while their store fails: active bans, and last verdicts.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_core::algorithm::Verdict;
use tollgate_core::ban::{Ban, BanEffect};

use super::{last_verdicts::LastVerdicts, two_generation_map::TwoGenerationMap};
use crate::request::{Cell, Check, RunOutcome, TagRequest, Verdicts};

/// Replies by which counters are decided during an outage of their store. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OutageCache {
    /// Last verdicts, shared by the workers of a process.
    pub(crate) last_verdicts: LastVerdicts,
    /// Enforced bans in the replies to a worker.
    pub(crate) bans: CachedBans,
}

impl OutageCache {
    /// Records the outcome of a request.
    pub(super) fn learn(&self, request: &TagRequest, outcome: &RunOutcome) {
        let Some(verdicts) = outcome.verdicts.last() else { return };
        self.last_verdicts.record(request, verdicts, &outcome.prefetched);
        self.bans.learn(request, verdicts);
    }
}

/// A verdict under a ban, and when it was received.
type CachedVerdict = Option<(Verdict, Instant)>;

/// Enforced bans by counter, bounded in number. The lock is uncontended. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedBans {
    verdicts: Arc<Mutex<TwoGenerationMap<CachedVerdict>>>,
}

impl CachedBans {
    /// Records the bans in the verdicts of a reply, and forgets those that have ended. Verdicts from the cache are of a
    /// reply that was recorded before.
    pub(super) fn learn(&self, request: &TagRequest, verdicts: &Verdicts) {
        if request.checks().all(|check| check.ban.is_none()) {
            return;
        }
        let mut cached = self.verdicts.lock();
        for ((cell, check), (_, verdict)) in request.checks_with_cells().zip(verdicts) {
            let is_banned = verdict.ban.is_some_and(|ban| ban.is_enforced);
            let entry = match is_banned {
                true => cached.get_or_insert(&cell.key, check.record, || None),
                false if check.ban.is_none() || cached.is_empty() => None,
                false => cached.get(&cell.key, check.record),
            };
            if let Some(entry) = entry {
                *entry = is_banned.then(|| (*verdict, Instant::now()));
            }
        }
        drop(cached.take_evicted());
    }

    /// The denial of a check whose counter has a cached ban.
    pub(crate) fn verdict(&self, cell: &Cell, check: &Check, now: Instant) -> Option<Verdict> {
        let is_enforced = check.ban.is_some_and(|ban| ban.effect == BanEffect::Enforce);
        if !is_enforced || !check.hits.may_be_withheld() {
            return None;
        }
        let mut cached = self.verdicts.lock();
        let known = cached.get(&cell.key, check.record).copied();
        drop(cached.take_evicted());
        drop(cached);
        let (verdict, received_at) = known??;
        let verdict = verdict.later(now.duration_since(received_at));
        let ban = verdict.ban.map(Ban::known);
        let over = check.hits.charged();
        (!verdict.retry_after.is_zero()).then_some(Verdict { ban, over, ..verdict })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use tollgate_core::algorithm::StateSummary;
    use tollgate_core::ban::{Ban, BanCheck, BanParameters, BanPolicy};

    use super::*;
    use crate::test_prelude::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_010_000_000);

    fn request(hits: Hits, effect: BanEffect) -> TagRequest {
        let quota = Quota { limit: 9, window: Window::of(Unit::Minute) };
        let ban = BanPolicy::new(&BanParameters::default(), quota).expect("in range");
        let ban = Some(BanCheck { policy: ban, effect });
        request_of("v", Check { ban, ..check(policy(Algorithm::FixedWindow, 9, 60), hits) })
    }

    fn verdict(ban: Option<Ban>) -> Verdicts {
        let policy = policy(Algorithm::FixedWindow, 9, 60);
        let summary = StateSummary::Words([0; 3]);
        let verdict = policy.verdict(summary, NOW, Hits::ONE, true, Charging::Independent);
        Verdicts::from_iter([(0, ban.map_or(verdict, |ban| verdict.under(ban, Hits::ONE)))])
    }

    #[test]
    fn an_enforced_ban_stands_until_its_end_unless_a_later_verdict_has_none() {
        let bans = CachedBans::default();
        let cached = |request: &TagRequest, after| {
            let (cell, check) = request.checks_with_cells().next().expect("one");
            bans.verdict(cell, check, Instant::now() + Duration::from_secs(after))
        };
        let (call, level) = (request(Hits::ONE, BanEffect::Enforce), NonZeroU8::MIN);
        let ban = Ban { until: NOW.seconds() + 60, level, is_new: true, is_enforced: true };
        bans.learn(&call, &verdict(Some(Ban { is_enforced: false, ..ban })));
        assert_eq!(cached(&call, 0), None, "only watched");
        bans.learn(&call, &verdict(Some(ban)));
        let more = cached(&request(Hits::charge(5), BanEffect::Enforce), 20).expect("banned");
        assert!(!more.admitted && more.over == 5 && more.retry_after <= Duration::from_secs(40));
        assert_eq!(more.ban, Some(ban.known()));
        assert_eq!(cached(&call, 61), None, "over");
        assert_eq!(cached(&request(Hits::ONE, BanEffect::Watch), 0), None);
        assert_eq!(cached(&request(Hits::refund(1), BanEffect::Enforce), 0), None);
        bans.learn(&call, &verdict(None));
        assert_eq!(cached(&call, 0), None, "lifted");
    }
}
