//! Regions, traffic and a network in one queue of events.

mod decisions;
mod events;
mod report;

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::shares::TableState;
use fastrand::Rng;

use self::events::{Due, Event};
pub(crate) use self::report::Report;
use super::plan::{Mishap, Plan};
use super::region::{EPOCH, Record, Region};
use super::tables::{self, File, Tables};
use super::{cell::Cell, oracle::Oracle};
use crate::table::RegionName;

/// Time for which loan requests are collected into one message, each way.
const BATCH_MICROS: u64 = 10_000;

/// Mean time between two announcements of a region to each other.
const PING_MICROS: u64 = 3_000_000;

/// Time between two comparisons of a region's tables with their record.
const COMPARE_MICROS: u64 = 1_000_000;

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    plan: Plan,
    rng: Rng,
    time: u64,
    queue: BinaryHeap<Reverse<Due>>,
    scheduled: u64,
    regions: Vec<Region>,
    oracle: Oracle,
    ideal: Cell,
    next_permit: u64,
    generation: u64,
    has_synchronised_labels: bool,
    report: Report,
}

/// Runs a plan.
pub(crate) fn run(plan: &Plan) -> Report {
    let mut world = World::new(plan.clone());
    world.start();
    while let Some(Reverse(Due(time, _, event))) = world.queue.pop() {
        if time > plan.length {
            break;
        }
        world.time = time;
        world.process(event);
    }
    world.report.over = world.oracle.over;
    world.report.true_over = world.oracle.true_over;
    world.report
}

impl World {
    fn new(plan: Plan) -> Self {
        let names: Vec<RegionName> = (0..plan.weights.len()).map(tables::name).collect();
        let first = File { generation: 1, weights: plan.weights.clone() };
        let is_fixed = plan.table_changes == 0 && plan.events.is_empty();
        let region = |(name, offset): (&RegionName, &i64)| {
            let tables = Tables::new(name.clone(), &first, plan.instances);
            Region {
                name: name.clone(),
                offset: *offset,
                record: Record::new(plan.kind),
                fixed_base: is_fixed.then(|| tables.base(0, &plan, EPOCH)),
                tables,
                is_lost: false,
                cut_off_until: 0,
                in_flight: None,
                waiting: Default::default(),
                replicas: Default::default(),
                recent: Default::default(),
            }
        };
        let regions = names.iter().zip(&plan.offsets).map(region).collect();
        let steps = plan.events.iter().any(|(_, event)| matches!(event, Mishap::Step { .. }));
        let has_offsets = plan.offsets.iter().any(|offset| *offset != 0);
        let failovers = plan
            .events
            .iter()
            .any(|(_, event)| !matches!(event, Mishap::CutOff { .. } | Mishap::Lost { .. }));
        let has_synchronised_labels =
            !failovers && !steps && (plan.kind.label_step().is_none() || !has_offsets);
        Self {
            rng: Rng::with_seed(plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            time: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            regions,
            oracle: Oracle::new(plan.kind, plan.limit, plan.burst),
            ideal: Cell::new(plan.kind),
            next_permit: 0,
            generation: 1,
            has_synchronised_labels,
            report: Report::default(),
            plan,
        }
    }

    fn start(&mut self) {
        self.schedule(0, Event::Arrival);
        for (at, event) in self.plan.events.clone() {
            if let Mishap::Failover { region, .. } = event {
                self.schedule(0, Event::Snapshot { region });
            }
            self.schedule(at, Event::Mishap(event));
        }
        if self.plan.network.partitions > 0 {
            self.schedule(0, Event::Partition);
        }
        if self.plan.table_changes > 0 {
            self.schedule(self.plan.table_changes, Event::ChangeTables);
        }
        if self.plan.table_changes > 0 || !self.plan.events.is_empty() {
            self.schedule(0, Event::Ping);
            for region in 0..self.regions.len() {
                self.schedule(0, Event::Compare { region });
            }
        }
        if self.plan.table_changes > 0 && self.plan.restarts > 0 {
            self.schedule(self.plan.restarts, Event::Restart);
        }
    }

    /// An instance of a region.
    fn instance(&mut self, region: usize) -> usize {
        match self.regions[region].tables.instances() {
            1 => 0,
            instances => self.rng.usize(..instances),
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Due(at, self.scheduled, event)));
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Arrival => self.arrival(),
            Event::Release { region, id } => {
                if self.regions[region].is_lost {
                    return;
                }
                self.regions[region].record.cell.release(id);
                self.ideal.release(id);
                self.oracle.released(id);
            }
            Event::LoanRequest { from, to, state, request } => self.lend(from, to, state, &request),
            Event::Reply { from, to, state, reply } => self.take(from, to, state, &reply),
            Event::Refusal { from, to, state, id } => {
                let instance = self.instance(to);
                self.announced(from, (to, instance), state);
                self.replied(to, id, 0);
            }
            Event::Announcement { from, to, state, instance } => self.announced(from, (to, instance), state),
            Event::Ping => self.ping(),
            Event::Compare { region } => {
                self.regions[region].tables.compare();
                self.schedule(self.time + COMPARE_MICROS, Event::Compare { region });
            }
            Event::Restart => self.restart(),
            Event::Partition => self.partition(),
            Event::Snapshot { region } => self.snapshot(region),
            Event::ChangeTables => self.change_tables(),
            Event::Write { region, file } => self.write(region, file),
            Event::Load { region, instance } => self.regions[region].tables.load(instance),
            Event::Timeout { region, id } => self.conclude(region, id),
            Event::Mishap(mishap) => self.mishap(mishap),
        }
    }

    // Network.

    fn send(&mut self, from: usize, to: usize, event: &Event) {
        let network = self.plan.network;
        let is_cut = |region: &Region| region.cut_off_until > self.time || region.is_lost;
        if is_cut(&self.regions[from]) || is_cut(&self.regions[to]) {
            return;
        }
        let trip = (self.plan.round_trips[from] + self.plan.round_trips[to]) / 4 + BATCH_MICROS;
        for is_copy in [false, true] {
            if is_copy && self.rng.u32(..1_000) >= network.duplication {
                continue;
            }
            if self.rng.u32(..1_000) < network.loss {
                continue;
            }
            // Most messages are in time, some very late.
            let late = match self.rng.u8(..4) {
                0 => self.rng.u64(..=network.max_delay),
                _ => self.rng.u64(..=network.max_delay / 20),
            };
            self.schedule(self.time + trip + late, event.clone());
        }
    }

    fn partition(&mut self) {
        let mean = self.plan.network.partitions;
        let region = self.rng.usize(..self.regions.len());
        self.regions[region].cut_off_until = self.time + self.rng.u64(..=mean);
        let next = self.time + 1 + self.rng.u64(..=2 * mean);
        self.schedule(next, Event::Partition);
    }

    // Tables.

    fn announced(&mut self, from: usize, (to, instance): (usize, usize), state: TableState) {
        let name = self.regions[from].name.clone();
        let micros = self.regions[to].micros(self.time);
        self.regions[to].tables.announced(instance, &name, state, micros);
    }

    /// An instance of each region announces its table to each instance of the others.
    fn ping(&mut self) {
        for from in 0..self.regions.len() {
            for to in (0..self.regions.len()).filter(|to| *to != from) {
                for instance in 0..self.regions[to].tables.instances() {
                    let state = self.instance(from);
                    let state = self.regions[from].tables.state(state);
                    self.send(from, to, &Event::Announcement { from, to, state, instance });
                }
            }
        }
        let next = self.time + self.rng.u64(1..=2 * PING_MICROS);
        self.schedule(next, Event::Ping);
    }

    fn change_tables(&mut self) {
        self.generation += 1;
        let weights: Vec<u32> = self.regions.iter().map(|_| self.rng.u32(1..=5)).collect();
        let is_late = self.rng.u8(..4) == 0;
        for region in 0..self.regions.len() {
            // Some regions skip a table.
            let spread = self.plan.table_changes * if is_late { 6 } else { 1 } / 4;
            let at = self.time + self.rng.u64(..=spread);
            let file = File { generation: self.generation, weights: weights.clone() };
            self.schedule(at, Event::Write { region, file });
        }
        self.schedule(self.time + self.plan.table_changes, Event::ChangeTables);
    }

    /// Writes the file of a region. Its instances load it one after another, some very late.
    fn write(&mut self, region: usize, file: File) {
        self.regions[region].tables.write(file);
        for instance in 0..self.regions[region].tables.instances() {
            let late = if self.rng.u8(..8) == 0 { self.plan.table_changes } else { 5 * COMPARE_MICROS };
            let at = self.time + self.rng.u64(..=late);
            self.schedule(at, Event::Load { region, instance });
        }
    }

    /// Restarts an instance, some before the file of the last change has reached it.
    fn restart(&mut self) {
        let region = self.rng.usize(..self.regions.len());
        let (instance, is_late) = (self.instance(region), self.rng.u8(..4) == 0);
        self.regions[region].tables.restart(instance, is_late);
        if is_late {
            let at = self.time + self.rng.u64(..=10 * COMPARE_MICROS);
            self.schedule(at, Event::Load { region, instance });
        }
        let next = self.time + self.rng.u64(1..=2 * self.plan.restarts);
        self.schedule(next, Event::Restart);
    }

    /// Writes a file in a region, which all of its instances load at once.
    fn load_at_once(&mut self, region: usize, file: &File) {
        let tables = &mut self.regions[region].tables;
        tables.write(file.clone());
        (0..tables.instances()).for_each(|instance| tables.load(instance));
    }

    // Mishaps.

    fn snapshot(&mut self, region: usize) {
        let record = self.regions[region].record.clone();
        let replicas = &mut self.regions[region].replicas;
        replicas.push_back((self.time, record));
        while replicas.len() > 64 {
            replicas.pop_front();
        }
        self.schedule(self.time + 50_000, Event::Snapshot { region });
    }

    fn mishap(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Step { region, by } => {
                // Loans last longer by as much as the clock goes back.
                let now = self.regions[region].moment(self.plan.kind, self.time);
                let ledger = &self.regions[region].record.ledger;
                if by < 0 {
                    self.report.allowed += ledger.borrowed(now.label).max(u64::from(self.plan.limit) / 2);
                }
                self.regions[region].offset += by;
            }
            Mishap::Failover { region, lost } => {
                let since = self.time.saturating_sub(lost);
                let region = &mut self.regions[region];
                let Some(at) = region.replicas.iter().rposition(|(time, _)| *time <= since) else { return };
                let (taken_at, record) = region.replicas[at].clone();
                region.replicas.truncate(at);
                region.record = record;
                let unknown =
                    region.recent.iter().filter(|(time, _)| *time >= taken_at).map(|(_, hits)| hits);
                self.report.allowed += unknown.sum::<u64>();
                region.recent.clear();
            }
            Mishap::CutOff { region, until } => self.regions[region].cut_off_until = until,
            Mishap::Lost { region } => self.regions[region].is_lost = true,
            Mishap::Dropped { region } => {
                self.generation += 1;
                let mut weights = self.plan.weights.clone();
                weights[region] = 0;
                let file = File { generation: self.generation, weights };
                for at in (0..self.regions.len()).filter(|at| *at != region) {
                    self.load_at_once(at, &file);
                }
            }
            Mishap::Back { region } => {
                self.generation += 1;
                let file = File { generation: self.generation, weights: self.plan.weights.clone() };
                let back = &mut self.regions[region];
                back.is_lost = false;
                back.cut_off_until = 0;
                back.record = Record::new(self.plan.kind);
                back.tables.join(&file);
                for at in (0..self.regions.len()).filter(|at| *at != region) {
                    self.load_at_once(at, &file);
                }
            }
        }
    }
}
