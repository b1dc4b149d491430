//! Changes of the region table, by demarcation: lower first, raise when all have lowered.
//!
//! From the moment it loads a table, an instance uses the smallest of its region's shares in all tables that may still
//! count. A region announces a table once all of its instances have it. When every other region has announced it, the
//! tables before it stop counting after the hits and loans that were admitted under them have ended. A region that an
//! operator marks as lost is not waited for; one that lives in spite of that adds its share to what passes, until it loads
//! the table.
//!
//! An instance that starts has its file alone, and so the tables before it are in the region's store, as a
//! [record](Demarcation::take_over) that each instance keeps. Without a record a region joins the others: it has no share
//! until all of them have announced the table. Nothing is raised on a guess.

use std::{collections::BTreeMap, mem};

use super::{InvalidTables, RegionShares, RegionWeights};
use tollgate_core::clock::Timestamp;

/// Maximum number of unfinished changes of weights.
const MAX_UNFINISHED: usize = 16;

/// Maximum number of tables before the active one; of more, the oldest are merged.
const MAX_FORMER: usize = 32;

/// Weights of one generation of the region table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightTable {
    /// Number of the table; a larger one replaces a smaller one.
    pub generation: u64,
    /// Digest of names, weights and lost regions, so that two contents of one generation differ.
    pub digest: u64,
    /// The weights; 0 for lost regions.
    pub weights: RegionWeights,
}

/// Weights before a change that may not have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerWeights {
    /// The table.
    pub table: WeightTable,
    /// Time since which no region uses more than its later share; `None` while one may.
    pub lowered_at: Option<Timestamp>,
}

/// State of a region's tables, as it announces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableState {
    /// Generation of the table of the instance that announces.
    pub generation: u64,
    /// Digest of that table.
    pub digest: u64,
    /// Generation whose shares no instance of the region exceeds.
    pub lowered: u64,
}

/// Active table of the own region, and the tables before it that may still count.
#[derive(Clone, Debug)]
pub struct Demarcation {
    table: WeightTable,
    /// From the oldest on.
    former: Vec<FormerWeights>,
    /// State of other regions, by name; the last one of each.
    announced: BTreeMap<Box<str>, TableState>,
    /// Generation that the own region has announced.
    own_lowered: u64,
    /// Whether the region's record was taken over.
    is_settled: bool,
}

impl FormerWeights {
    const fn id(&self) -> (u64, u64) {
        self.table.id()
    }

    /// Merges another one into this one: shares are at most as large as in both, for as long as in either.
    fn merge(&mut self, other: Self) {
        self.lowered_at = self.lowered_at.zip(other.lowered_at).map(|(one, other)| one.max(other));
        self.table.weights = self.table.weights.clone().lower(other.table.weights);
    }
}

impl WeightTable {
    const fn id(&self) -> (u64, u64) {
        (self.generation, self.digest)
    }
}

impl Demarcation {
    /// Returns the state of an instance that starts with `table`, before it takes over the record of its region.
    pub const fn new(table: WeightTable) -> Self {
        Self { table, former: Vec::new(), announced: BTreeMap::new(), own_lowered: 0, is_settled: false }
    }

    /// Takes over the record of the own region, which its store keeps, `""` for none: once before decisions, and then
    /// regularly, since other instances may have loaded tables that this one has not. Returns the record that has to
    /// replace it, if it lacks a table of this instance.
    ///
    /// Without a record, a region of the first generation has its share. One of a later generation joins: it may have been
    /// added, or have returned, while the others still use more. `is_running` is whether other instances of the region
    /// have the table, which then have no record because they are of an earlier version.
    ///
    /// # Errors
    /// [`InvalidTables`] for a record that cannot be read; it counts as none, and must not be replaced.
    pub fn take_over(&mut self, record: &str, is_running: bool) -> Result<Option<String>, InvalidTables> {
        let is_first = !mem::replace(&mut self.is_settled, true);
        let own = self.table.weights.own().unwrap_or_default();
        let tables = match record {
            "" => Ok(Vec::new()),
            record => super::read_tables(record, own),
        };
        let is_known = tables.as_ref().is_ok_and(|tables| !tables.is_empty());
        if is_first && !is_known && !is_running && self.table.generation > 1 {
            let weights = RegionWeights::none();
            let table = WeightTable { generation: 0, digest: 0, weights };
            self.former.insert(0, FormerWeights { table, lowered_at: None });
        }
        let tables = tables?;
        let newest = tables.last().map_or(0, |former| former.table.generation);
        // Of the own weights under another number, the share is the same.
        let others = tables.into_iter().filter(|former| former.table.weights != self.table.weights);
        let others: Vec<_> = others.collect();
        others.into_iter().for_each(|former| self.include(former));
        self.bound();
        let text = super::write_tables(&self.former, &self.table);
        Ok((newest <= self.table.generation && text != record).then_some(text))
    }

    /// Whether a record, or its absence, was taken over.
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Replaces the table. Until every region has announced it, the smallest share of all tables applies.
    ///
    /// # Errors
    /// The reason, for a table that is not newer, or one change too many.
    pub fn propose(&mut self, table: WeightTable) -> Result<(), String> {
        let (new, active) = (table.generation, self.table.generation);
        if new <= active {
            return Err(format!("generation: {new} is not above the active {active}; expected a higher one"));
        }
        if self.unfinished() >= MAX_UNFINISHED {
            return Err(format!(
                "{MAX_UNFINISHED} changes are unfinished; expected every region to announce an earlier one first"
            ));
        }
        // As a former one it may have come with the record.
        self.former.retain(|former| former.id() != table.id());
        self.announced.retain(|name, _| table.weights.regions().any(|region| region.name == *name));
        let table = mem::replace(&mut self.table, table);
        if table.weights != self.table.weights {
            self.include(FormerWeights { table, lowered_at: None });
            self.bound();
        }
        Ok(())
    }

    /// Records what another region announced at `now`. Returns whether that finished the change: every region uses at most
    /// its share of the active table.
    pub fn announced(&mut self, region: &str, state: TableState, now: Timestamp) -> bool {
        self.announced.insert(region.into(), state);
        self.finish(now)
    }

    /// Finishes the change at `now`, if no other region is waited for; whether it did.
    pub fn finish(&mut self, now: Timestamp) -> bool {
        if self.unfinished() == 0 || self.waiting_for().next().is_some() {
            return false;
        }
        for former in &mut self.former {
            former.lowered_at.get_or_insert(now);
        }
        true
    }

    /// Records that all instances of the own region have a generation; without effect if it is not the active one.
    pub const fn lowered(&mut self, generation: u64) {
        if self.table.generation == generation {
            self.own_lowered = generation;
        }
    }

    /// State that the own region announces.
    pub const fn state(&self) -> TableState {
        let Self { table, own_lowered, .. } = self;
        TableState { generation: table.generation, digest: table.digest, lowered: *own_lowered }
    }

    /// Whether another state has the same table; only such regions lend to each other.
    pub const fn has_table(&self, state: &TableState) -> bool {
        self.table.generation == state.generation && self.table.digest == state.digest
    }

    /// Last state that a region announced.
    pub fn state_of(&self, region: &str) -> Option<&TableState> {
        self.announced.get(region)
    }

    /// Whether a region announced another table of the active generation.
    pub fn differs(&self, region: &str) -> bool {
        let is_other =
            |state: &TableState| state.generation == self.table.generation && !self.has_table(state);
        self.state_of(region).is_some_and(is_other)
    }

    /// Other regions that have not announced the active table: of those with a share in it, or in one that some region may
    /// still use. A region that the active table lists without a share is lost, and is not waited for.
    pub fn waiting_for(&self) -> impl Iterator<Item = &str> {
        let unfinished = self.former.iter().filter(|former| former.lowered_at.is_none());
        let tables = unfinished.map(|former| &former.table.weights);
        let former = tables.flat_map(RegionWeights::regions).filter(|region| {
            region.weight > 0 && self.table.weights.regions().all(|known| known.name != region.name)
        });
        let active = self.table.weights.regions().filter(|region| region.weight > 0);
        let mut names: Vec<&str> = active.chain(former).map(|region| &*region.name).collect();
        names.sort_unstable();
        names.dedup();
        let own = self.table.weights.own();
        let has_announced = |name: &str| {
            let state = self.state_of(name);
            state.is_some_and(|state| state.lowered == self.table.generation && !self.differs(name))
        };
        names.into_iter().filter(move |name| Some(*name) != own && !has_announced(name))
    }

    /// Changes of weights after which another region may use more than its share.
    pub fn unfinished(&self) -> usize {
        self.former.iter().filter(|former| former.lowered_at.is_none()).count()
    }

    /// The active table.
    pub const fn table(&self) -> &WeightTable {
        &self.table
    }

    /// Own shares as of now.
    pub fn shares(&self) -> RegionShares {
        RegionShares::new(self.table.generation, self.table.weights.clone(), self.former.clone())
    }

    /// Adds a table that may count, or the time since which it ends. One from before those that were merged is merged too.
    fn include(&mut self, former: FormerWeights) {
        if former.id() == self.table.id() {
            return;
        }
        let at = self.former.partition_point(|known| known.id() < former.id());
        match self.former.get_mut(at) {
            Some(known) if known.id() == former.id() => {
                known.lowered_at = known.lowered_at.max(former.lowered_at);
            }
            Some(first) if at == 0 && !first.table.weights.gives_rest && first.table.generation > 0 => {
                first.merge(former);
            }
            _ => self.former.insert(at, former),
        }
    }

    /// Merges the oldest tables, if there are too many.
    fn bound(&mut self) {
        while self.former.len() > MAX_FORMER {
            let first = self.former.remove(0);
            if let Some(next) = self.former.first_mut() {
                next.merge(first);
            }
        }
    }
}
