//! Active bans in this process. They are not persisted: the counters in this process end with it too.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    ops::Bound,
};

use parking_lot::Mutex;

use crate::{
    BanCounts, BanFilter, BanPage, BanPosition, ListedBan, ListedBanMode, bans::PageBuilder, bounds::MAX_BANS,
};

/// The list: bans by their places, the latest end first.
#[derive(Debug, Default)]
pub(crate) struct MemoryBans(Mutex<BTreeMap<Reverse<BanPosition>, ListedBan>>);

impl MemoryBans {
    /// Adds bans, which replace earlier ones of their counters.
    pub(crate) fn record(&self, bans: &[ListedBan], now_ms: u64) -> BanCounts {
        let replaced: HashSet<&str> = bans.iter().map(|ban| &*ban.id).collect();
        let mut list = self.0.lock();
        list.retain(|_, ban| ban.ends_at_ms > now_ms && !replaced.contains(&*ban.id));
        let active = bans.iter().filter(|ban| ban.ends_at_ms > now_ms);
        list.extend(active.map(|ban| (Reverse(ban.position()), ban.clone())));
        while list.len() > MAX_BANS {
            let watched = list.iter().rev().find(|(_, ban)| ban.mode == ListedBanMode::Watch);
            let first_to_end =
                watched.or_else(|| list.last_key_value()).map(|(position, _)| position.clone());
            first_to_end.and_then(|position| list.remove(&position));
        }
        let count =
            |mode| list.values().filter(|ban| ban.mode == mode).fold(0_u64, |sum, _| sum.saturating_add(1));
        BanCounts { enforce: count(ListedBanMode::Enforce), watch: count(ListedBanMode::Watch) }
    }

    /// Returns bans behind a position.
    pub(crate) fn page(
        &self,
        filter: BanFilter<'_>,
        after: Option<BanPosition>,
        limit: usize,
        now_ms: u64,
    ) -> BanPage {
        let list = self.0.lock();
        let begin = after.clone().map_or(Bound::Unbounded, |after| Bound::Excluded(Reverse(after)));
        let mut page = PageBuilder::new(filter, after, limit);
        for (Reverse(position), ban) in list.range((begin, Bound::Unbounded)) {
            if ban.ends_at_ms > now_ms && !page.push(position.clone(), Some(ban.clone())) {
                return page.part();
            }
        }
        page.last()
    }

    pub(crate) fn get(&self, id: &str, now_ms: u64) -> Option<ListedBan> {
        self.0.lock().values().find(|ban| ban.id == id && ban.ends_at_ms > now_ms).cloned()
    }

    /// Removes a ban; whether it existed.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let mut list = self.0.lock();
        let before = list.len();
        list.retain(|_, ban| ban.id != id);
        list.len() < before
    }
}
