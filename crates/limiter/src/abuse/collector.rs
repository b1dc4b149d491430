//! Observers of the workers, and what they observed together.

use std::{
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    sync::Arc,
};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tollgate_core::descriptor::{Descriptor, Entry};
use tollgate_rules::{AbuseTrigger, Domain, Rule, Rules};

use super::{
    report::AbuseReport,
    table::{Counts, KeyHash, KeySet, Keys, Table},
};
use crate::{
    talkers::key::KeyEntries,
    verdict::{Code, Status},
};

/// Collector of what the workers of one instance observe. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AbuseCollector(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    tables: Mutex<Vec<Arc<Mutex<Table>>>>,
    /// Keys whose admitted requests count although they had no denied one.
    watched: Mutex<Arc<KeySet>>,
    hasher: RandomState,
}

/// Observer of one worker. A request costs a hash of its descriptor if an abuse rule of its domain counts it, and
/// otherwise a comparison of keys.
#[derive(Clone, Debug)]
pub struct AbuseObserver {
    table: Arc<Mutex<Table>>,
    hasher: RandomState,
}

/// Counts that the abuse rules of a domain need of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    denied: bool,
    admitted: bool,
    hits: bool,
}

impl AbuseCollector {
    /// Adds an observer.
    pub fn observer(&self) -> AbuseObserver {
        let table = Arc::<Mutex<Table>>::default();
        self.0.tables.lock().push(Arc::clone(&table));
        AbuseObserver { table, hasher: self.0.hasher.clone() }
    }

    /// Takes what was observed since the last call, `interval_ms` ago, as the report number `sequence` of one of `instances`.
    /// Returns the number of keys that were observed and are not counted, too.
    pub fn report(
        &self,
        rules: &Rules,
        sequence: u64,
        interval_ms: u64,
        instances: u32,
    ) -> (AbuseReport, u64) {
        let (keys, mut dropped) = self.take();
        let (report, left_out) = AbuseReport::of(keys.into_values(), rules, sequence, interval_ms, instances);
        dropped = dropped.saturating_add(left_out);
        (report, dropped)
    }

    /// Replaces the keys whose admitted requests count although they had no denied one: domains and texts.
    pub fn watch<'a>(&self, keys: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let hash = |(domain, text): (&str, &str)| {
            let read = KeyEntries::read(text).whole()?;
            let entries: Vec<Entry<'_>> =
                read.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect();
            Some(hash_of(&self.0.hasher, domain, &entries))
        };
        let watched: Arc<KeySet> = Arc::new(keys.into_iter().filter_map(hash).collect());
        *self.0.watched.lock() = Arc::clone(&watched);
        for table in &*self.0.tables.lock() {
            table.lock().watched = Arc::clone(&watched);
        }
    }

    fn take(&self) -> (Keys, u64) {
        let tables: Vec<_> = {
            let mut tables = self.0.tables.lock();
            let all = tables.clone();
            // The last counts of a worker that has ended are taken in this round.
            tables.retain(|table| Arc::strong_count(table) > 2);
            all
        };
        let (mut all, mut dropped) = (Keys::default(), 0_u64);
        for table in tables {
            let (keys, lost) = table.lock().take();
            dropped = dropped.saturating_add(lost);
            for (hash, key) in keys {
                match all.get_mut(&hash) {
                    Some(known) => known.counts.add(key.counts),
                    None => {
                        all.insert(hash, key);
                    }
                }
            }
        }
        let watched = Arc::clone(&self.0.watched.lock());
        for (hash, key) in &mut all {
            key.is_watched = watched.contains(hash);
        }
        (all, dropped)
    }
}

impl AbuseObserver {
    /// Counts the descriptors of a decided request of a domain that has abuse rules. Never waits for long: the collector
    /// only takes the table.
    pub(crate) fn record(&self, domain: &Domain, descriptors: &[Descriptor<'_>], statuses: &[Status<'_>]) {
        for (descriptor, status) in descriptors.iter().zip(statuses) {
            let hits = descriptor.hits.charged();
            let Status::Limited(limited) = status else { continue };
            let (Some(rule), false, false) = (limited.rule, limited.is_quota, hits == 0) else { continue };
            let needs = Needs::of(domain, rule, &descriptor.entries);
            let is_denied = limited.code() == Code::OverLimit;
            let counts = Counts {
                denied: u64::from(is_denied),
                hits: if needs.hits { hits } else { 0 },
                is_admitted: !is_denied,
            };
            let is_counted = needs.hits || needs.denied && is_denied;
            if !is_counted && !needs.admitted {
                continue;
            }
            let hash = hash_of(&self.hasher, &domain.name, &descriptor.entries);
            let mut table = self.table.lock();
            match is_counted {
                true => table.add(hash, &domain.name, &descriptor.entries, counts),
                false => table.admit(hash, &domain.name, &descriptor.entries),
            }
        }
    }
}

impl Needs {
    fn of(domain: &Domain, rule: &Rule, entries: &[Entry<'_>]) -> Self {
        let mut needs = Self::default();
        for abuse in domain.abuse.iter().filter(|abuse| abuse.is_of_one_client(rule, entries)) {
            match abuse.trigger {
                AbuseTrigger::DeniedPerSecond { .. } => needs.denied = true,
                AbuseTrigger::DeniedInARow { .. } => (needs.denied, needs.admitted) = (true, true),
                AbuseTrigger::HitsPerSecond { .. } => needs.hits = true,
            }
        }
        needs
    }
}

fn hash_of(hasher: &RandomState, domain: &str, entries: &[Entry<'_>]) -> KeyHash {
    let mut hash = hasher.build_hasher();
    domain.hash(&mut hash);
    for entry in entries {
        entry.key.hash(&mut hash);
        entry.value.hash(&mut hash);
    }
    hash.finish()
}
