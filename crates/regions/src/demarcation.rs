//! Changes of the region table, by demarcation: lower first, raise when all have lowered.
//!
//! From the moment it loads a newer table, a region uses the smallest of its shares in all tables that may still be in use
//! somewhere, and announces the table. Once each other region has announced it, no region uses more than that table allows,
//! except by loans and hits from before. After those have ended, the table alone counts. A region that an operator marks
//! as lost is not waited for; one that lives in spite of that adds its share to what passes, until it loads the table.
//!
//! Nothing is raised on a guess: without an announcement, shares stay as low as they are.

use std::{collections::BTreeSet, iter, mem};

use crate::{
    table::{RegionName, RegionTable, TableStamp},
    terms::{Kind, MAX_SKEW_MICROS, Moment},
};

/// Maximum number of tables that may be in use at the same time.
const MAX_TABLES: usize = 8;

/// Time after which all instances of a region use a table that one of them has loaded, in microseconds. The region
/// announces the table no earlier.
pub const SPREAD_MICROS: u64 = 10_000_000;

/// Tables that one region has loaded, and who has announced the newest.
#[derive(Clone, Debug)]
pub struct Demarcation {
    own: RegionName,
    newest: Stage,
    /// Earlier tables that may still be in use, from the oldest on.
    earlier: Vec<Stage>,
    /// Regions that have announced the newest.
    announced: BTreeSet<RegionName>,
    /// Whether this region had no share before the oldest table.
    is_joining: bool,
}

/// A table, and when it was loaded and completed, in microseconds.
#[derive(Clone, Debug)]
struct Stage {
    table: RegionTable,
    /// When this region loaded it.
    loaded_at: u64,
    /// When the last of the other regions announced it.
    complete_at: Option<u64>,
}

/// Error of a table that is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// An older one, or another one of the same number.
    #[error("the generation of the table was used before; expected a larger one for other content")]
    NotNewer,
    /// Too many changes that some region has not announced.
    #[error("{MAX_TABLES} tables wait for another region; expected it to load them or to be marked as lost")]
    TooMany,
}

impl Stage {
    /// Whether only this table and newer ones count for limits of this kind: loans and hits from before have ended.
    /// Windows count from one that begins a window later, whatever the clocks of the regions differ.
    fn counts_alone(&self, kind: Kind, now: Moment) -> bool {
        let Some(complete_at) = self.complete_at else { return false };
        let (span, begins_at) = match kind.label_step() {
            Some(step) => {
                let span = kind.booking_span().saturating_add(step).saturating_mul(1_000_000);
                (span, now.label.saturating_sub(step).saturating_mul(1_000_000))
            }
            None => (kind.booking_span(), now.micros),
        };
        complete_at == 0 || complete_at.saturating_add(span).saturating_add(MAX_SKEW_MICROS) <= begins_at
    }
}

impl Demarcation {
    /// Returns the state of a region that starts with `table` and trusts that all others do.
    pub const fn new(own: RegionName, table: RegionTable) -> Self {
        let newest = Stage { table, loaded_at: 0, complete_at: Some(0) };
        Self { own, newest, earlier: Vec::new(), announced: BTreeSet::new(), is_joining: false }
    }

    /// Returns the state of a region that joins others: it has no share until all of them have announced `table`.
    pub fn joining(own: RegionName, table: RegionTable, micros: u64) -> Self {
        let newest = Stage { table, loaded_at: micros, complete_at: None };
        let mut joining =
            Self { own, newest, earlier: Vec::new(), announced: BTreeSet::new(), is_joining: true };
        joining.complete(micros);
        joining
    }

    /// Loads a newer table at `micros`; `longest` is the time after which nothing of the tables before it counts in any
    /// limit, in microseconds. Loading the newest one again changes nothing.
    ///
    /// # Errors
    /// [`Refused`] for a table that is not newer, or one change too many.
    pub fn load(&mut self, table: RegionTable, micros: u64, longest: u64) -> Result<(), Refused> {
        if table == self.newest.table {
            return Ok(());
        }
        if table.generation() <= self.newest.table.generation() {
            return Err(Refused::NotNewer);
        }
        let is_over =
            |stage: &Stage| stage.complete_at.is_some_and(|at| at.saturating_add(longest) <= micros);
        let first = match self.earlier.iter().rposition(is_over) {
            _ if is_over(&self.newest) => self.earlier.len(),
            over => over.unwrap_or(0),
        };
        if self.earlier.len().saturating_sub(first) >= MAX_TABLES {
            return Err(Refused::TooMany);
        }
        self.is_joining = self.is_joining && first == 0 && !is_over(&self.newest);
        self.earlier.drain(..first);
        self.earlier
            .push(mem::replace(&mut self.newest, Stage { table, loaded_at: micros, complete_at: None }));
        self.announced.clear();
        self.complete(micros);
        Ok(())
    }

    /// Records that a region has announced a table.
    pub fn announced(&mut self, region: &RegionName, stamp: TableStamp, micros: u64) {
        if stamp == self.newest.table.stamp() && self.awaited().any(|awaited| awaited == region) {
            self.announced.insert(region.clone());
            self.complete(micros);
        }
    }

    /// Table that this region announces, and under which it lends and borrows: the newest that all its instances use.
    pub fn announces(&self, micros: u64) -> TableStamp {
        let is_spread =
            |stage: &&Stage| stage.loaded_at == 0 || stage.loaded_at.saturating_add(SPREAD_MICROS) <= micros;
        let mut stages = iter::once(&self.newest).chain(self.earlier.iter().rev());
        stages.find(is_spread).map_or_else(TableStamp::default, |stage| stage.table.stamp())
    }

    /// Share of this region in a limit without loans: the smallest of all tables that may be in use.
    pub fn base(&self, limit: u32, counter: &[u8], kind: Kind, now: Moment) -> u32 {
        let base = |stage: &Stage| stage.table.base(limit, counter, &self.own);
        let newest = base(&self.newest);
        if self.newest.counts_alone(kind, now) {
            return newest;
        }
        let alone = self.earlier.iter().rposition(|stage| stage.counts_alone(kind, now));
        if self.is_joining && alone.is_none() {
            return 0;
        }
        self.earlier.iter().skip(alone.unwrap_or(0)).map(base).min().unwrap_or(newest).min(newest)
    }

    /// The newest table.
    pub const fn newest(&self) -> &RegionTable {
        &self.newest.table
    }

    /// Regions that have not announced the newest table and are not lost.
    pub fn missing(&self) -> impl Iterator<Item = &RegionName> {
        self.awaited().filter(|region| !self.announced.contains(*region))
    }

    /// Other regions that had a share in any table that may be in use, or have one in the newest.
    fn awaited(&self) -> impl Iterator<Item = &RegionName> {
        let stages = self.earlier.iter().chain(iter::once(&self.newest));
        let regions: BTreeSet<_> = stages.flat_map(|stage| stage.table.peers(&self.own)).collect();
        let is_lost = |name: &RegionName| self.newest.table.region(name).is_some_and(|region| region.is_lost);
        regions.into_iter().filter(move |name| !is_lost(name))
    }

    fn complete(&mut self, micros: u64) {
        if self.newest.complete_at.is_none() && self.missing().next().is_none() {
            self.newest.complete_at = Some(micros.max(1));
        }
    }
}
