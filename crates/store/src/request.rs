//! What a request asks of its counters, and what came of it.

use smallvec::SmallVec;

use super::key::CellKey;
use tollgate_core::{
    RecordId, SyncMode,
    algorithm::{Charging, Policy, Verdict},
    descriptor::Hits,
};

/// What one descriptor asks of one counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// The descriptor's position in its request.
    pub descriptor: usize,
    /// The counter's name in its cell.
    pub record: RecordId,
    /// What decides.
    pub policy: Policy,
    /// What is asked.
    pub hits: Hits,
    /// Whether its denial keeps the other counters of the call from being charged, where they are charged all or
    /// none. One that gives back keeps nothing.
    pub vetoes: bool,
    /// Whether the store may decide it from what an instance holds.
    pub sync: SyncMode,
}

impl Check {
    /// Whether the ask, when denied, keeps the other counters of its call from being charged.
    pub const fn is_veto(&self) -> bool {
        self.vetoes && !self.hits.is_refund()
    }

    /// How it counts what it denies, in a call that is charged so. A leased counter counts only what passes: else
    /// tokens that are given back would come too late for those who were denied meanwhile.
    pub const fn counting(&self, charging: Charging) -> Charging {
        match self.sync {
            SyncMode::Strict => charging,
            SyncMode::Leased => Charging::AllOrNone,
        }
    }
}

/// One cell, and what is asked of its counters, in the request's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The cell's name.
    pub key: CellKey,
    /// What is asked.
    pub checks: SmallVec<[Check; 1]>,
}

impl Cell {
    /// Whether only one ask is of the counter.
    pub fn checks_once(&self, record: RecordId) -> bool {
        self.checks.iter().filter(|check| check.record == record).count() == 1
    }
}

/// All that a request asks of one hash tag: decided in one atomic step.
#[derive(Clone, Debug)]
pub struct TagRequest {
    /// Cells of one tag, each once.
    pub cells: SmallVec<[Cell; 1]>,
    /// Whether a denial keeps the others from being charged.
    pub charging: Charging,
}

/// What the asks of one call came to, cell by cell, each with its descriptor's position.
pub type Verdicts = SmallVec<[(usize, Verdict); 1]>;

/// All calls of one request, each for another tag. Most have one, of one ask: room for more, here and above, would be
/// moved along with every request.
pub type Requests = SmallVec<[TagRequest; 1]>;

impl TagRequest {
    /// A call with one ask.
    pub fn new(charging: Charging, key: CellKey, check: Check) -> Self {
        Self { cells: SmallVec::from_iter([Cell { key, checks: SmallVec::from_iter([check]) }]), charging }
    }

    /// The tag that the call's cells share.
    pub fn tag(&self) -> &[u8] {
        self.cells.first().map(|cell| cell.key.tag()).unwrap_or_default()
    }

    /// Adds an ask to the cell `key`, which has this call's tag.
    pub fn push(&mut self, key: CellKey, check: Check) {
        match self.cells.iter_mut().find(|cell| cell.key == key) {
            Some(cell) => cell.checks.push(check),
            None => self.cells.push(Cell { key, checks: SmallVec::from_iter([check]) }),
        }
    }

    /// Every ask, cell by cell.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.cells.iter().flat_map(|cell| &cell.checks)
    }

    /// Every ask with its cell, cell by cell.
    pub fn checks_with_cells(&self) -> impl Iterator<Item = (&Cell, &Check)> {
        self.cells.iter().flat_map(|cell| cell.checks.iter().map(move |check| (cell, check)))
    }
}

/// Adds an ask to the call of its tag.
pub fn push_check(requests: &mut Requests, charging: Charging, key: CellKey, check: Check) {
    match requests.iter_mut().find(|request| request.tag() == key.tag()) {
        Some(request) => request.push(key, check),
        None => requests.push(TagRequest::new(charging, key, check)),
    }
}
