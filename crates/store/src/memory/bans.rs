//! Bans of counters: their records stand beside the counters, in the same shard.

use smallvec::SmallVec;
use tollgate_core::{
    algorithm::CounterState,
    ban::{Ban, BanCheck, BanEffect, BanRecord},
    clock::Timestamp,
};

use super::{CounterKey, EvictionRank, MemoryStore, shard::Shard};
use crate::request::{Cell, Check, TagRequest};

/// The active ban of each check of a request; empty for a request without bans.
pub(super) type ActiveBans = SmallVec<[Option<Ban>; 1]>;

impl MemoryStore {
    /// Settles the bans of a request before anything is charged.
    pub(super) fn settle_bans(&self, shard: &mut Shard, request: &TagRequest, now: Timestamp) -> ActiveBans {
        if request.checks().all(|check| check.ban.is_none()) {
            return ActiveBans::new();
        }
        let settle = |(cell, check): (&Cell, &Check)| {
            let ban = check.applied_ban()?;
            self.on_record(shard, cell, check, now, |record| settle(record, check, &ban, now))
        };
        request.checks_with_cells().map(settle).collect()
    }

    /// Counts the outcome of a check: the charged hits if it was admitted or denied by itself.
    pub(super) fn count_for_ban(
        &self,
        shard: &mut Shard,
        (cell, check): (&Cell, &Check),
        now: Timestamp,
        admitted: bool,
    ) {
        let Some(BanCheck { policy, .. }) = check.applied_ban() else { return };
        let hits = check.hits.charged();
        if hits > 0 {
            let (admitted, denied) = if admitted { (hits, 0) } else { (0, hits) };
            self.on_record(shard, cell, check, now, |record| record.count(&policy, now, admitted, denied));
        }
    }

    fn on_record<T>(
        &self,
        shard: &mut Shard,
        cell: &Cell,
        check: &Check,
        now: Timestamp,
        work: impl FnOnce(&mut BanRecord) -> T,
    ) -> T {
        let id = check.record.of_ban();
        let name = CounterKey::new(&self.shared.hasher, cell.key.as_bytes(), &id);
        shard.decide(&name, now, |state| {
            let mut record = match state {
                CounterState::Words(words) => BanRecord::from_words(*words),
                CounterState::Log(_) | CounterState::Leases(_) | CounterState::Ledger(_) => {
                    BanRecord::default()
                }
            };
            let result = work(&mut record);
            *state = CounterState::Words(record.words());
            // A ban is kept like a counter that denies.
            (result, EvictionRank::new(record.active(now).is_some(), record.expires_at()))
        })
    }
}

fn settle(record: &mut BanRecord, check: &Check, ban: &BanCheck, now: Timestamp) -> Option<Ban> {
    let active = record.active(now);
    match ban.effect {
        BanEffect::Lift => record.lift(),
        BanEffect::Forgive => *record = BanRecord::default(),
        BanEffect::Watch | BanEffect::Enforce if check.hits.charged() == 0 => {}
        BanEffect::Watch | BanEffect::Enforce => return ban.report(record.settle(&ban.policy, now, 0)),
    }
    ban.report(active)
}
