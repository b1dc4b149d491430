//! One region: its clock, counter, record and table.

use std::collections::VecDeque;

use super::{cell::Cell, plan::Plan, tables::Tables};
use crate::protocol::{self, Usage};
use crate::terms::{LimitKind, Moment, Terms};
use crate::{ledger::Ledger, policy::Demand, table::RegionName};

/// Time of all clocks at the start of a run, in microseconds since the epoch; no multiple of any window.
pub(crate) const EPOCH: u64 = 1_700_000_000_000_000;

/// State in the store of a region: lost in part by a failover.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) cell: Cell,
    pub(crate) ledger: Ledger,
    pub(crate) demand: Demand,
    /// Effective limit in the counter's cell, the base from which it follows, and the last label at which it holds.
    effective: u32,
    base: u32,
    good_until: u64,
}

/// One region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) name: RegionName,
    pub(crate) offset: i64,
    pub(crate) record: Record,
    pub(crate) tables: Tables,
    /// Share in a run without changes of the table.
    pub(crate) fixed_base: Option<u32>,
    pub(crate) is_lost: bool,
    pub(crate) cut_off_until: u64,
    /// The loan request in flight: number, amount wanted, amount gained, replies missing.
    pub(crate) in_flight: Option<InFlight>,
    /// Denied requests that wait for it: number, hits and time of arrival.
    pub(crate) waiting: VecDeque<(u64, u64, u64)>,
    /// Records of the last time, for failovers.
    pub(crate) replicas: VecDeque<(u64, Record)>,
    /// Hits admitted and booked of late, with their times, for the bound on a failover.
    pub(crate) recent: VecDeque<(u64, u64)>,
}

/// A loan request whose replies are awaited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) id: u64,
    pub(crate) wanted: u32,
    pub(crate) gained: u32,
    pub(crate) missing: usize,
}

impl Record {
    pub(crate) fn new(kind: LimitKind) -> Self {
        Self {
            cell: Cell::new(kind),
            ledger: Ledger::default(),
            demand: Demand::default(),
            effective: 0,
            base: u32::MAX,
            good_until: 0,
        }
    }

    /// Effective limit of the counter, from its cell while that is good.
    pub(crate) fn effective(&mut self, terms: &Terms, now: Moment) -> u32 {
        if now.label > self.good_until || terms.base != self.base {
            self.settle(terms, now);
        }
        self.effective
    }

    fn settle(&mut self, terms: &Terms, now: Moment) {
        let full_at = protocol::settle(&mut self.ledger, terms, now, self.cell.full_at());
        self.changed(terms, now, full_at);
    }

    /// Writes the cell after a transition.
    pub(crate) fn changed(&mut self, terms: &Terms, now: Moment, full_at: u64) {
        self.cell.set_full_at(full_at);
        self.effective = self.ledger.effective(terms, now.label);
        self.good_until = self.ledger.good_until(now.label);
        self.base = terms.base;
    }

    pub(crate) fn usage(
        &mut self,
        kind: LimitKind,
        now: Moment,
        need: impl FnOnce(u32, &Demand) -> u32,
    ) -> Usage {
        let used = u32::try_from(self.cell.used(kind, now)).unwrap_or(u32::MAX);
        let (need, full_at) = (need(used, &self.demand), self.cell.full_at());
        Usage { used, need, full_at, reserve: kind.reserve_micros() }
    }
}

impl Region {
    /// The region's clock, in microseconds since the epoch.
    pub(crate) fn micros(&self, time: u64) -> u64 {
        (EPOCH + time).saturating_add_signed(self.offset)
    }

    pub(crate) fn moment(&self, kind: LimitKind, time: u64) -> Moment {
        self.record.cell.moment(kind, self.micros(time))
    }

    /// Terms of the limit, as an instance has them.
    pub(crate) fn terms(&self, plan: &Plan, now: Moment, instance: usize) -> Terms {
        let changing = || self.tables.base(instance, plan, now.micros);
        Terms { kind: plan.kind, limit: plan.limit, base: self.fixed_base.unwrap_or_else(changing) }
    }
}
