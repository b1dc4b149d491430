//! Regions, traffic and a network in one queue of events.

use std::{cmp::Reverse, collections::BinaryHeap, f64::consts::TAU};

use fastrand::Rng;
use tollgate_core::region::TableState;

use super::{
    cell::Cell,
    oracle::Oracle,
    plan::{Borrowing, Mishap, Plan, Traffic},
    region::{EPOCH, InFlight, Record, Region},
    tables::{self, File, Tables},
};
use crate::{
    fault::{Fault, is_injected},
    message::{LoanRequest, Reply},
    policy,
    protocol::{self, Share},
    table::RegionName,
    terms::{Kind, Moment, Terms},
};

/// Time for which loan requests are collected into one message, each way.
const BATCH_MICROS: u64 = 10_000;

/// Mean time between two announcements of a region to each other.
const PING_MICROS: u64 = 3_000_000;

/// Time between two comparisons of a region's tables with their record.
const COMPARE_MICROS: u64 = 1_000_000;

/// Attempts to write what was read.
const MAX_ATTEMPTS: u32 = 8;

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) decisions: u64,
    pub(crate) admitted: u64,
    /// Hits that one counter of all regions admits.
    pub(crate) ideal: u64,
    pub(crate) loan_requests: u64,
    pub(crate) granted: u64,
    /// The most hits over the limit at any time.
    pub(crate) over: u64,
    pub(crate) true_over: u64,
    /// The most by which the effective limits of all regions exceeded the limit, where clocks are comparable.
    pub(crate) over_committed: u64,
    /// Hits over the limit that mishaps allow at most.
    pub(crate) allowed: u64,
    /// Hits offered in all by minute, with those admitted and those of the ideal counter.
    pub(crate) minutes: Vec<[u64; 3]>,
    /// Requests that waited and were admitted, and how long in all, in microseconds.
    pub(crate) waited: u64,
    pub(crate) wait: u64,
    pub(crate) longest_wait: u64,
}

impl Report {
    /// Part of the ideal admissions that were not made.
    pub(crate) fn lost(&self) -> f64 {
        1.0 - self.admitted as f64 / self.ideal.max(1) as f64
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Arrival,
    Release { region: usize, id: u64 },
    LoanRequest { from: usize, to: usize, state: TableState, request: LoanRequest },
    Reply { from: usize, to: usize, state: TableState, reply: Reply },
    Refusal { from: usize, to: usize, state: TableState, id: u64 },
    Announcement { from: usize, to: usize, state: TableState, instance: usize },
    Ping,
    Compare { region: usize },
    Restart,
    Partition,
    Snapshot { region: usize },
    ChangeTables,
    Write { region: usize, file: File },
    Load { region: usize, instance: usize },
    Timeout { region: usize, id: u64 },
    Mishap(Mishap),
}

#[derive(Debug)]
struct Due(u64, u64, Event);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

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

    // Traffic.

    fn arrival(&mut self) {
        let rate = self.plan.load * f64::from(self.plan.limit) / self.plan.kind.period(self.plan.hold);
        let mean_hits = (1 + self.plan.max_hits) as f64 / 2.0;
        let wait = -(1.0 - self.rng.f64()).ln() / rate * mean_hits * 1e6;
        self.schedule(self.time + 1 + wait as u64, Event::Arrival);
        let Some(region) = self.place() else { return };
        let hits = self.rng.u64(1..=self.plan.max_hits);
        self.decide(region, hits);
    }

    /// Region in which a request arrives.
    fn place(&mut self) -> Option<usize> {
        let count = self.regions.len();
        let seconds = self.time as f64 / 1e6;
        let hot = match self.plan.traffic {
            Traffic::Shift => (seconds / 60.0) as usize % count,
            _ => 0,
        };
        let weight = |at: usize| match self.plan.traffic {
            _ if self.regions[at].is_lost => 0.0,
            Traffic::Uniform => 1.0,
            Traffic::Hot | Traffic::Shift if at == hot => 9.0 * (count - 1) as f64,
            Traffic::Hot | Traffic::Shift => 1.0,
            Traffic::Sun => {
                let phase = seconds / 1_440.0 - at as f64 / count as f64;
                (TAU * phase).cos().max(0.0).powi(2) + 0.02
            }
        };
        let weights: Vec<f64> = (0..count).map(weight).collect();
        let mut left = self.rng.f64() * weights.iter().sum::<f64>();
        for (at, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return Some(at);
            }
        }
        weights.iter().position(|weight| *weight > 0.0)
    }

    fn decide(&mut self, at: usize, hits: u64) {
        self.next_permit += 1;
        let id = self.next_permit;
        let kind = self.plan.kind;
        let instance = self.instance(at);
        let now = self.regions[at].moment(kind, self.time);
        let terms = self.regions[at].terms(&self.plan, now, instance);
        let effective = self.regions[at].record.effective(&terms, now);
        let is_admitted = self.admit(at, now, &terms, hits, id);
        let record = &mut self.regions[at].record;
        if !matches!(record.cell, Cell::Permits(_)) || !is_admitted {
            record.demand.add(now.micros, hits as u32);
        }
        let ideal_now = self.ideal.moment(kind, EPOCH + self.time);
        let is_ideal = self.ideal.admit(kind, ideal_now, self.plan.limit, hits, id);
        self.count(hits, is_admitted, is_ideal);
        if (is_admitted || is_ideal) && matches!(self.ideal, Cell::Permits(_)) {
            let held = -(1.0 - self.rng.f64()).ln() * self.plan.hold as f64;
            self.schedule(self.time + 1 + held as u64, Event::Release { region: at, id });
        }
        let denied = if is_admitted { 0 } else { hits as u32 };
        match self.plan.borrowing {
            Borrowing::Never => {}
            Borrowing::Policy => self.borrow_by_policy((at, instance), now, &terms, effective, denied),
            Borrowing::Random => self.borrow_at_random((at, instance), now, &terms, effective),
        }
        if denied > 0 && self.plan.waits && self.regions[at].in_flight.is_some() {
            self.regions[at].waiting.push_back((id, hits, self.time));
        }
    }

    /// Decides hits by the region's counter, under the judge's eyes.
    fn admit(&mut self, at: usize, now: Moment, terms: &Terms, hits: u64, id: u64) -> bool {
        let record = &mut self.regions[at].record;
        let effective = record.effective(terms, now);
        let is_admitted = record.cell.admit(terms.kind, now, effective, hits, id);
        if is_admitted {
            self.oracle.admitted(EPOCH + self.time, now, hits, id);
            self.check_sum();
            if self.plan.events.iter().any(|(_, event)| matches!(event, Mishap::Failover { .. })) {
                self.regions[at].recent.push_back((self.time, hits));
            }
        }
        is_admitted
    }

    /// Decides the requests that wait; without a loan request in flight, those that are still denied wait no more.
    fn retry(&mut self, at: usize) {
        for _ in 0..self.regions[at].waiting.len() {
            let Some((id, hits, arrived_at)) = self.regions[at].waiting.pop_front() else { return };
            let instance = self.instance(at);
            let now = self.regions[at].moment(self.plan.kind, self.time);
            let terms = self.regions[at].terms(&self.plan, now, instance);
            // Permits are numbered in the order in which they are held.
            self.next_permit += 1;
            let permit = self.next_permit;
            if self.admit(at, now, &terms, hits, permit) {
                if matches!(self.ideal, Cell::Permits(_)) {
                    let held = -(1.0 - self.rng.f64()).ln() * self.plan.hold as f64;
                    self.schedule(self.time + 1 + held as u64, Event::Release { region: at, id: permit });
                }
                if arrived_at >= self.plan.warm_up {
                    self.report.admitted += hits;
                    self.report.waited += 1;
                    self.report.wait += self.time - arrived_at;
                    self.report.longest_wait = self.report.longest_wait.max(self.time - arrived_at);
                }
            } else if self.regions[at].in_flight.is_some() {
                self.regions[at].waiting.push_back((id, hits, arrived_at));
            }
        }
    }

    fn count(&mut self, hits: u64, is_admitted: bool, is_ideal: bool) {
        if self.time < self.plan.warm_up {
            return;
        }
        let minute = (self.time / 60_000_000) as usize;
        if self.report.minutes.len() <= minute {
            self.report.minutes.resize(minute + 1, [0; 3]);
        }
        let (admitted, ideal) = (u64::from(is_admitted) * hits, u64::from(is_ideal) * hits);
        for (sum, hits) in self.report.minutes[minute].iter_mut().zip([hits, admitted, ideal]) {
            *sum += hits;
        }
        self.report.decisions += 1;
        self.report.admitted += admitted;
        self.report.ideal += ideal;
    }

    /// Compares the effective limits, and the hits that count, of all regions with the limit.
    fn check_sum(&mut self) {
        if !self.has_synchronised_labels {
            return;
        }
        let limit = u64::from(self.plan.limit);
        let mut limits = 0;
        let mut used = 0;
        for region in &mut self.regions {
            let now = region.moment(self.plan.kind, self.time);
            let terms = region.terms(&self.plan, now, 0);
            limits += u64::from(region.record.ledger.effective(&terms, now.label));
            used += region.record.cell.used(self.plan.kind, now);
        }
        if self.plan.table_changes == 0 {
            self.report.over_committed = self.report.over_committed.max(limits.saturating_sub(limit));
        }
        self.oracle.over = self.oracle.over.max(used.saturating_sub(limit));
    }

    // Loan requests.

    fn borrow_by_policy(
        &mut self,
        (at, instance): (usize, usize),
        now: Moment,
        terms: &Terms,
        effective: u32,
        denied: u32,
    ) {
        let region = &mut self.regions[at];
        let record = &mut region.record;
        let must_renew = policy::must_renew(&record.ledger, terms, now);
        if !must_renew && !policy::may_request(&record.ledger, now) {
            return;
        }
        let used = record.cell.used(terms.kind, now) as u32;
        let shortage = policy::shortage(terms, now, effective, used, denied, &record.demand);
        if shortage.is_none() && !must_renew {
            return;
        }
        let target = policy::range(terms, now, used, &record.demand).target;
        let target = target.max(shortage.map_or(0, |want| effective + want));
        let peers = region.tables.peers(instance);
        let shares = policy::shares(&record.ledger, terms, now, target, peers.iter());
        self.request_loans((at, instance), now, terms, &shares);
    }

    fn borrow_at_random(
        &mut self,
        (at, instance): (usize, usize),
        now: Moment,
        terms: &Terms,
        effective: u32,
    ) {
        if self.rng.u8(..20) > 0 {
            return;
        }
        let some = |rng: &mut Rng, most: u32| if rng.bool() { most } else { rng.u32(..=most) };
        let region = &self.regions[at];
        let mut shares = Vec::new();
        for peer in region.tables.peers(instance) {
            let borrowed =
                region.record.ledger.account(&peer).map_or(0, |account| account.borrowed_at(now.label));
            let (hold, want) = (some(&mut self.rng, borrowed), some(&mut self.rng, terms.limit - effective));
            if self.rng.bool() {
                shares.push(Share { peer, hold, want });
            }
        }
        self.request_loans((at, instance), now, terms, &shares);
    }

    fn request_loans(
        &mut self,
        (at, instance): (usize, usize),
        now: Moment,
        terms: &Terms,
        shares: &[Share],
    ) {
        let round_trip = self.plan.round_trips.iter().max().copied().unwrap_or(0) + 2 * BATCH_MICROS;
        let region = &mut self.regions[at];
        policy::claim(&mut region.record.ledger, now, round_trip);
        if shares.is_empty() {
            return;
        }
        let usage = region.record.usage(terms.kind, now, |used, _| used);
        let (requests, full_at) =
            protocol::request_loans(&mut region.record.ledger, terms, now, usage, shares);
        region.record.changed(terms, now, full_at);
        let id = region.record.ledger.last_id;
        let wanted = shares.iter().fold(0_u32, |sum, share| sum.saturating_add(share.want));
        region.in_flight = Some(InFlight { id, wanted, gained: 0, missing: requests.len() });
        let state = region.tables.state(instance);
        let deadline = self.time + round_trip.saturating_mul(4).max(policy::MIN_CLAIM_MICROS);
        self.schedule(deadline, Event::Timeout { region: at, id });
        for (peer, request) in requests {
            let to = self.regions.iter().position(|region| region.name == peer).expect("a region");
            self.report.loan_requests += u64::from(self.time >= self.plan.warm_up);
            self.send(at, to, &Event::LoanRequest { from: at, to, state, request });
        }
    }

    fn lend(&mut self, from: usize, to: usize, state: TableState, request: &LoanRequest) {
        let instance = self.instance(to);
        self.announced(from, (to, instance), state);
        if self.regions[to].is_lost {
            return;
        }
        let kind = self.plan.kind;
        let now = self.regions[to].moment(kind, self.time);
        let own = self.regions[to].tables.state(instance);
        if !self.regions[to].tables.has_table(instance, &state) {
            self.send(to, from, &Event::Refusal { from: to, to: from, state: own, id: request.id });
            return;
        }
        let terms = self.regions[to].terms(&self.plan, now, instance);
        let peer = self.regions[from].name.clone();
        let is_random = self.plan.borrowing == Borrowing::Random;
        let random = self.rng.u32(..=terms.limit);
        let need = move |used: u32, demand: &policy::Demand| match is_random {
            true if random.is_multiple_of(2) => 0,
            true => random,
            false => policy::need(&terms, now, used, demand),
        };
        let before = self.regions[to].record.ledger.lent(now.label);
        let Some(lent) = self.make_loan(to, now, &terms, need, &peer, request) else { return };
        let booked = self.regions[to].record.ledger.lent(now.label).saturating_sub(before);
        if self.plan.events.iter().any(|(_, event)| matches!(event, Mishap::Failover { .. })) {
            self.regions[to].recent.push_back((self.time, booked + u64::from(lent.reply.amount)));
        }
        self.report.granted += u64::from(lent.reply.amount);
        if lent.recall > 0 && !is_random && policy::may_request(&self.regions[to].record.ledger, now) {
            let region = &self.regions[to];
            let peers = region.tables.peers(instance);
            let peers = peers.iter().filter(|name| **name != peer);
            let shares = policy::recall(&region.record.ledger, now, lent.recall, peers);
            if !shares.is_empty() {
                self.request_loans((to, instance), now, &terms, &shares);
            }
        }
        self.send(to, from, &Event::Reply { from: to, to: from, state: own, reply: lent.reply });
    }

    /// Lends as a store does: it reads, and then writes unless the counter has changed too much in the meantime.
    fn make_loan(
        &mut self,
        at: usize,
        now: Moment,
        terms: &Terms,
        need: impl Fn(u32, &policy::Demand) -> u32,
        peer: &RegionName,
        request: &LoanRequest,
    ) -> Option<protocol::Lent> {
        let has_races = self.plan.races && matches!(terms.kind, Kind::TokenBucket { .. });
        for attempt in 0..MAX_ATTEMPTS {
            let record = &mut self.regions[at].record;
            let usage = record.usage(terms.kind, now, &need);
            let (read, read_at) = (record.ledger.clone(), usage.full_at.max(now.micros));
            let mut ledger = read.clone();
            let lent = protocol::lend(&mut ledger, terms, now, usage, peer, request).ok()?;
            if has_races && attempt + 1 < MAX_ATTEMPTS {
                // Without loan requests, which would lead to further loans.
                for _ in 0..self.rng.u32(..terms.base.clamp(2, 50)) {
                    self.next_permit += 1;
                    self.admit(at, now, terms, 1, self.next_permit);
                }
            }
            let record = &mut self.regions[at].record;
            let full_at = record.cell.full_at();
            let is_within = full_at <= read_at.saturating_add(usage.reserve);
            if record.ledger == read && (is_within || is_injected(Fault::LentBeforeHits)) {
                record.ledger = ledger;
                let later =
                    if full_at == usage.full_at { lent.full_at } else { full_at + lent.full_at - read_at };
                record.changed(terms, now, later);
                return Some(lent);
            }
        }
        None
    }

    fn take(&mut self, from: usize, to: usize, state: TableState, reply: &Reply) {
        let instance = self.instance(to);
        self.announced(from, (to, instance), state);
        if self.regions[to].is_lost {
            return;
        }
        let kind = self.plan.kind;
        let peer = self.regions[from].name.clone();
        let region = &mut self.regions[to];
        let now = region.moment(kind, self.time);
        let terms = region.terms(&self.plan, now, instance);
        let usage = region.record.usage(kind, now, |used, _| used);
        let taken = protocol::take(&mut region.record.ledger, &terms, now, usage, &peer, reply);
        let Ok(taken) = taken else { return };
        region.record.changed(&terms, now, taken.full_at);
        if taken.is_expected {
            self.replied(to, reply.id, taken.gained);
        }
        self.retry(to);
    }

    fn replied(&mut self, at: usize, id: u64, gained: u32) {
        let Some(sent) = self.regions[at].in_flight.as_mut().filter(|sent| sent.id == id) else { return };
        sent.gained += gained;
        sent.missing = sent.missing.saturating_sub(1);
        if sent.missing == 0 {
            self.conclude(at, id);
        }
    }

    fn conclude(&mut self, at: usize, id: u64) {
        let now = self.regions[at].moment(self.plan.kind, self.time);
        let region = &mut self.regions[at];
        if let Some(sent) = region.in_flight.take_if(|sent| sent.id == id) {
            policy::conclude(&mut region.record.ledger, now, sent.wanted, sent.gained);
        }
        self.retry(at);
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
