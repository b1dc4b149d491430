//! Loans of counters that regions share: their ledgers, and what decisions need of them.
//!
//! The transitions of a ledger are functions of [`tollgate_loans::protocol`], and the same code runs with every store: a
//! store reads the ledger and the counter, runs a step on them, and writes what it leaves if neither changed in the
//! meantime; otherwise the step runs again on the new content. With the ledger it writes the totals that decisions read,
//! which stand in the counter's cell.

mod watch;

use std::num::NonZeroU64;

use tollgate_core::algorithm::effective_limit::{fill_micros, full_at, label};
use tollgate_core::algorithm::{CounterState, Loan, LoanTotals, Policy, RegionShare, Words};
use tollgate_core::{RecordId, clock::Timestamp};
/// The protocol of loans.
pub use tollgate_loans as regions;
use tollgate_loans::ledger::Ledger;
use tollgate_loans::protocol::{self, Usage};
use tollgate_loans::terms::{LimitKind, Moment, Terms};

pub use self::watch::{ShareWatch, Shortage};
use crate::{StoreError, key::CellKey};

const MICROS_PER_SECOND: u64 = 1_000_000;

/// Ends of loans that are looked at: more than the regions of a table can have at once.
const MAX_ENDS: usize = 512;

/// Time for which a ledger is kept after the last transaction, in milliseconds, even without loans.
const MIN_LEDGER_TTL_MILLIS: u64 = 60_000;

/// A counter that regions share.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedCounter {
    /// Name of its cell.
    pub cell: CellKey,
    /// Id of its record in the cell.
    pub record: RecordId,
    /// Policy of the region's share.
    pub policy: Policy,
    /// The region's share.
    pub share: RegionShare,
}

/// Loans of a counter, as a step reads and changes them.
#[derive(Clone, Debug)]
pub struct Loans {
    /// The ledger, which the step may change.
    pub ledger: Ledger,
    /// Time at which a bucket is full, in microseconds since the epoch, which the step may raise; 0 for others.
    pub full_at: u64,
    /// Terms of the limit.
    pub terms: Terms,
    /// Time of the step.
    pub now: Moment,
    /// Hits that count now; 0 for a bucket.
    pub used: u32,
    /// Limit under which the counter is decided; the ledger may allow more.
    pub effective: u32,
    /// Time at which a bucket may be full at the latest when the step is written, if it depends on that.
    max_full_at: Option<u64>,
}

impl Loans {
    /// Use of the counter, of which the region keeps `need` at least.
    pub const fn usage(&self, need: u32) -> Usage {
        Usage { used: self.used, need, full_at: self.full_at, reserve: 0 }
    }

    /// Use of the counter by a step that lends. The fill of a bucket is a part of the reply, and so hits until the step is written may
    /// take no more of it than a reserve.
    pub const fn usage_to_lend(&mut self, need: u32) -> Usage {
        let reserve = self.terms.kind.reserve_micros();
        self.max_full_at = Some(self.full_at.saturating_add(reserve));
        Usage { reserve, ..self.usage(need) }
    }
}

/// State of a counter that a store read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Time at which it was read.
    pub now: Timestamp,
    /// State of the counter.
    pub state: Words,
    /// Totals of the ledger that decisions read.
    pub totals: LoanTotals,
    /// The ledger as text, empty for none.
    pub ledger: String,
}

/// State that a store writes, unless the counter changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Label for which it was computed.
    pub label: u32,
    /// Hits that may count at most, or the time in microseconds at which a bucket may be full at the latest; `None` for any.
    pub most: Option<u64>,
    /// Totals of the ledger that decisions read.
    pub totals: LoanTotals,
    /// Microseconds by which a bucket will be full later.
    pub full_later: u64,
    /// The ledger as text.
    pub ledger: String,
    /// Time in milliseconds for which the ledger is kept.
    pub ttl_millis: u64,
}

impl SharedCounter {
    /// Terms of the limit.
    pub fn terms(&self) -> Terms {
        let window = self.share.window_seconds(&self.policy);
        let kind = match &self.policy {
            Policy::SlidingWindow(_) => LimitKind::SlidingWindow { window },
            Policy::TokenBucket(_) => LimitKind::TokenBucket { window, capacity: fill_micros(&self.policy) },
            policy => {
                debug_assert!(
                    matches!(policy, Policy::FixedWindow(_)) || !policy.can_be_lent(),
                    "{policy:?}"
                );
                LimitKind::FixedWindow { window }
            }
        };
        Terms { kind, limit: self.share.limit.get(), base: self.share.base }
    }

    /// Runs a step on what a store read. Returns its result, and what to write, if anything.
    pub(crate) fn run<T>(
        &self,
        snapshot: &Snapshot,
        step: &mut impl FnMut(&mut Loans) -> T,
    ) -> Result<(T, Option<Change>), StoreError> {
        let mut loans = self.loans(snapshot)?;
        let (used, before) = (loans.used, loans.effective);
        let full_before = full_at(&self.policy, &CounterState::Words(snapshot.state)).max(loans.now.micros);
        let result = step(&mut loans);
        let label = label(&self.policy, &CounterState::Words(snapshot.state), snapshot.now);
        let totals = totals_of(&loans.ledger, &loans.terms, loans.now.label);
        let after = totals.effective(&self.share, label);
        let is_bucket = matches!(self.policy, Policy::TokenBucket(_));
        let change = Change {
            label,
            most: if is_bucket {
                loans.max_full_at
            } else {
                (after < before).then(|| after.max(used).into())
            },
            totals,
            full_later: loans.full_at.saturating_sub(full_before),
            // A line for each field, its name and value separated by a space.
            ledger: loans.ledger.fields().iter().map(|(field, value)| format!("{field} {value}\n")).collect(),
            ttl_millis: self.ttl_millis(&loans),
        };
        let is_new = change.ledger != snapshot.ledger
            || change.full_later > 0
            || totals_differ(&totals, &snapshot.totals, label);
        Ok((result, is_new.then_some(change)))
    }

    fn loans(&self, snapshot: &Snapshot) -> Result<Loans, StoreError> {
        let terms = self.terms();
        let fields = snapshot.ledger.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
        let ledger = Ledger::from_fields(fields).map_err(|error| StoreError::Refused(error.to_string()))?;
        let mut state = CounterState::Words(snapshot.state);
        let label = label(&self.policy, &state, snapshot.now);
        let micros = snapshot.now.as_micros();
        let effective = snapshot.totals.effective(&self.share, label);
        let now =
            Moment { label: if terms.kind.label_step().is_some() { label.into() } else { micros }, micros };
        let (used, full_at) = match &self.policy {
            // A store may have forgotten when a full bucket became full.
            Policy::TokenBucket(_) => (0, self.full_at(snapshot, effective).max(micros)),
            policy => (policy.peek(&mut state, snapshot.now).used, 0),
        };
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        let mut loans = Loans { ledger, full_at, terms, now, used, effective, max_full_at: None };
        // Before the totals that decisions read forget what has ended: for a bucket, the end lowers the fill.
        loans.full_at = protocol::settle(&mut loans.ledger, &terms, now, full_at);
        Ok(loans)
    }

    /// When a bucket is full. One whose ledger was lost gets back what it has lent, without tokens.
    fn full_at(&self, snapshot: &Snapshot, effective: u32) -> u64 {
        let full_at = full_at(&self.policy, &CounterState::Words(snapshot.state));
        let (now, capacity, base) = (snapshot.now.as_micros(), fill_micros(&self.policy), self.share.base);
        let base = NonZeroU64::new(base.into()).filter(|base| u64::from(effective) < base.get());
        let Some(base) = base.filter(|_| snapshot.ledger.is_empty()) else { return full_at };
        let filled = capacity.saturating_sub(full_at.saturating_sub(now));
        let left = u128::from(filled).saturating_mul(effective.into());
        let left = left.checked_div(base.get().into()).unwrap_or_default();
        now.saturating_add(capacity.saturating_sub(u64::try_from(left).unwrap_or(filled)))
    }

    /// Milliseconds for which the ledger is kept: longer than any of its loans counts.
    fn ttl_millis(&self, loans: &Loans) -> u64 {
        let ends = loans.ledger.ends_at(&loans.terms);
        let unit = if loans.terms.kind.label_step().is_some() { 1_000_000 } else { 1 };
        let left = ends.saturating_mul(unit).saturating_sub(loans.now.micros).div_ceil(1_000);
        // A bucket that is not full may have records in its cell for longer.
        let fill = fill_micros(&self.policy).div_ceil(1_000);
        left.saturating_add(MIN_LEDGER_TTL_MILLIS).saturating_add(fill)
    }
}

/// Totals of a ledger at a label: what is borrowed, until any of it ends; and what is lent, until all of it has ended. So
/// they never allow more than the ledger does, and are exact until the first change of it.
fn totals_of(ledger: &Ledger, terms: &Terms, label: u64) -> LoanTotals {
    let hits = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
    let (borrowed, lent) = (ledger.borrowed(label), ledger.lent(label));
    let borrowed_until = last_label(ledger, label, |label| ledger.borrowed(label) >= borrowed);
    let lent_until = last_label(ledger, label, |label| ledger.lent(label) > 0);
    // Unless the end is settled before, a bucket has what it lent again when its refill since then would fill it: that
    // makes no tokens.
    let lent_until = match terms.kind {
        LimitKind::TokenBucket { capacity, .. } => lent_until.saturating_add(capacity),
        _ => lent_until,
    };
    let is_label = terms.kind.label_step().is_some();
    let word = |label: u64| u32::try_from(label).unwrap_or(u32::MAX);
    // A label of a second is the end of it.
    let (first, last) = if is_label {
        (word(borrowed_until), word(lent_until))
    } else {
        (word(borrowed_until / MICROS_PER_SECOND), word((lent_until / MICROS_PER_SECOND).saturating_add(1)))
    };
    let loan = |hits, until| if hits == 0 { Loan::default() } else { Loan { hits, until } };
    LoanTotals { borrowed: loan(hits(borrowed), first), lent: loan(hits(lent), last) }
}

/// The last label up to which a condition holds that holds at `label`.
fn last_label(ledger: &Ledger, label: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let mut last = ledger.good_until(label);
    for _ in 0..MAX_ENDS {
        let next = last.saturating_add(1);
        if last == u64::MAX || !holds(next) {
            break;
        }
        last = ledger.good_until(next);
    }
    last
}

/// Whether totals differ in what they allow from a label on.
fn totals_differ(one: &LoanTotals, other: &LoanTotals, label: u32) -> bool {
    let active = |loan: Loan| if loan.hits > 0 && loan.until >= label { loan } else { Loan::default() };
    active(one.borrowed) != active(other.borrowed) || active(one.lent) != active(other.lent)
}

#[cfg(test)]
mod tests;
