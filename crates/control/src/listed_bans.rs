//! Active bans of counters, for showing.
//!
//! The record in the counter's cell decides; the list shows. A ban is missing in the list when very many begin at once, or
//! while the control store is unavailable.

use std::collections::{BTreeMap, HashSet};
use std::{cmp::Reverse, fmt, ops::Bound};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tollgate_core::ban::BanMode;
use tollgate_directory::Fingerprint;
use tollgate_runtime::redact::beginning;

use crate::bounds::{MAX_BAN_KEY_BYTES, MAX_BAN_PAGE, MAX_BANS};
use crate::{Pair, pairs::pairs_text};

/// A ban of one counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedBan {
    /// Id of the counter: a later ban of it replaces the former one.
    pub id: String,
    /// The rule's domain.
    pub domain: String,
    /// The rule's path, as in metrics and `/rlconfig`.
    pub rule: String,
    /// The descriptor of a request that the counter limits.
    pub descriptor: Vec<Pair>,
    /// Whether the descriptor was longer than [`MAX_BAN_KEY_BYTES`] and is only its beginning.
    #[serde(default)]
    pub is_truncated: bool,
    /// Number of the ban in a row, from 1: each doubles the time.
    pub level: u8,
    /// Whether it denies.
    pub mode: BanMode,
    /// Begin in milliseconds since 1970.
    pub began_at_ms: u64,
    /// End in milliseconds since 1970.
    pub ends_at_ms: u64,
    /// The instance that recorded it.
    pub instance: String,
}

impl ListedBan {
    /// Id of the ban of the counter that a descriptor has by a rule.
    pub fn id_of(domain: &str, rule: &str, descriptor: &[Pair]) -> String {
        let pairs = descriptor.iter().flat_map(|pair| [pair.key.as_bytes(), pair.value.as_bytes()]);
        Fingerprint::of([domain.as_bytes(), rule.as_bytes()].into_iter().chain(pairs)).to_string()
    }

    /// The ban with a descriptor of at most [`MAX_BAN_KEY_BYTES`] bytes, and an end that a sorted set has exactly.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.ends_at_ms = self.ends_at_ms.min(1 << 53);
        let mut room = MAX_BAN_KEY_BYTES;
        let mut is_truncated = false;
        for Pair { key, value } in &mut self.descriptor {
            for text in [key, value] {
                is_truncated |= text.len() > room;
                text.truncate(beginning(text, room).len());
                room -= text.len();
            }
        }
        self.is_truncated |= is_truncated;
        self
    }

    /// The descriptor as text.
    pub fn key_text(&self) -> String {
        pairs_text(&self.descriptor) + if self.is_truncated { "…" } else { "" }
    }

    /// Its place in the list.
    pub fn position(&self) -> BanPosition {
        BanPosition { ends_at_ms: self.ends_at_ms, id: self.id.clone() }
    }
}

/// A place in the list, which is ordered by the ends, the latest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BanPosition {
    /// End in milliseconds since 1970.
    pub ends_at_ms: u64,
    /// Id of the counter.
    pub id: String,
}

impl BanPosition {
    /// Reads a position as it is written by `Display`.
    pub fn read(text: &str) -> Option<Self> {
        let (end, id) = text.split_once('-')?;
        Some(Self { ends_at_ms: end.parse().ok()?, id: id.to_owned() })
    }
}

impl fmt::Display for BanPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ends_at_ms, self.id)
    }
}

/// Number of active bans in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BanCounts {
    /// Bans that deny.
    pub enforce: u64,
    /// Bans that are only counted.
    pub watch: u64,
}

/// Part of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BanPage {
    /// Active bans, the latest end first.
    pub bans: Vec<ListedBan>,
    /// The position behind the page, unless the list ends there.
    pub next: Option<BanPosition>,
}

/// Filter of a list of bans.
#[derive(Clone, Copy, Debug, Default)]
pub struct BanFilter<'a> {
    /// Bans of one domain only.
    pub domain: Option<&'a str>,
    /// Bans with this effect only.
    pub mode: Option<BanMode>,
}

impl BanFilter<'_> {
    pub(super) fn passes(&self, ban: &ListedBan) -> bool {
        self.domain.is_none_or(|domain| ban.domain == domain) && self.mode.is_none_or(|mode| ban.mode == mode)
    }
}

/// A page being filled from the list.
#[derive(Debug)]
pub(super) struct PageBuilder<'a> {
    filter: BanFilter<'a>,
    limit: usize,
    /// The page so far, which the list may continue.
    pub(super) page: BanPage,
}

impl<'a> PageBuilder<'a> {
    /// An empty page behind a position.
    pub(super) fn new(filter: BanFilter<'a>, after: Option<BanPosition>, limit: usize) -> Self {
        Self { filter, limit: limit.min(MAX_BAN_PAGE), page: BanPage { bans: Vec::new(), next: after } }
    }

    /// Adds the next element of the list, unless the filter or an unreadable record excludes it. Whether there is room
    /// for more.
    pub(super) fn push(&mut self, position: BanPosition, ban: Option<ListedBan>) -> bool {
        self.page.bans.extend(ban.filter(|ban| self.filter.passes(ban)));
        self.page.next = Some(position);
        self.page.bans.len() < self.limit
    }

    /// The page, if the list has ended.
    pub(super) fn last(self) -> BanPage {
        BanPage { next: None, ..self.page }
    }
}

/// The list in this process, by the places of bans, the latest end first. It is not persisted: the counters in this process end
/// with it too.
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
            let watched = list.iter().rev().find(|(_, ban)| ban.mode == BanMode::Watch);
            let first_to_end =
                watched.or_else(|| list.last_key_value()).map(|(position, _)| position.clone());
            first_to_end.and_then(|position| list.remove(&position));
        }
        let count = |mode| list.values().filter(|ban| ban.mode == mode).count() as u64;
        BanCounts { enforce: count(BanMode::Enforce), watch: count(BanMode::Watch) }
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
                return page.page;
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

#[cfg(test)]
mod tests {

    use super::*;

    fn ban(pairs: &[(&str, &str)]) -> ListedBan {
        let pair = |(key, value): &(&str, &str)| Pair { key: (*key).to_owned(), value: (*value).to_owned() };
        ListedBan {
            id: "1".into(),
            domain: "d".into(),
            rule: "k".into(),
            descriptor: pairs.iter().map(pair).collect(),
            is_truncated: false,
            level: 1,
            mode: BanMode::Watch,
            began_at_ms: 1,
            ends_at_ms: 2,
            instance: "i".into(),
        }
    }

    #[test]
    fn a_long_descriptor_is_shown_by_its_beginning() {
        let whole = ban(&[("k", &"v".repeat(MAX_BAN_KEY_BYTES - 1))]).bounded();
        assert!(!whole.is_truncated && !whole.key_text().ends_with('…'));
        let long = ban(&[("key", &"é".repeat(MAX_BAN_KEY_BYTES)), ("more", "x")]).bounded();
        assert!(long.is_truncated && long.key_text().ends_with('…'));
        let bytes: usize = long.descriptor.iter().map(|pair| pair.key.len() + pair.value.len()).sum();
        assert!((MAX_BAN_KEY_BYTES - 1..=MAX_BAN_KEY_BYTES).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_position_is_read_as_it_is_written() {
        let position = ban(&[]).position();
        assert_eq!(BanPosition::read(&position.to_string()), Some(position));
        for text in ["", "1", "-1", "x-1", "18446744073709551616-1"] {
            assert_eq!(BanPosition::read(text), None, "{text}");
        }
    }
}
