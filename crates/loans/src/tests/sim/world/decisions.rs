//! Requests, and the loans that they lead to.

use std::f64::consts::TAU;

use crate::shares::TableState;
use fastrand::Rng;

use super::{BATCH_MICROS, Event, World};
use crate::fault::{Fault, is_injected};
use crate::message::{LoanRequest, Reply};
use crate::protocol::{self, Share};
use crate::terms::{LimitKind, Moment, Terms};
use crate::tests::sim::cell::Cell;
use crate::tests::sim::plan::{Borrowing, Mishap, Traffic};
use crate::tests::sim::region::{EPOCH, InFlight};
use crate::{policy, table::RegionName};

/// Attempts to write what was read.
const MAX_ATTEMPTS: u32 = 8;

impl World {
    pub(super) fn arrival(&mut self) {
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

    // Loans.

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

    pub(super) fn lend(&mut self, from: usize, to: usize, state: TableState, request: &LoanRequest) {
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
        let has_races = self.plan.races && matches!(terms.kind, LimitKind::TokenBucket { .. });
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

    pub(super) fn take(&mut self, from: usize, to: usize, state: TableState, reply: &Reply) {
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

    pub(super) fn replied(&mut self, at: usize, id: u64, gained: u32) {
        let Some(sent) = self.regions[at].in_flight.as_mut().filter(|sent| sent.id == id) else { return };
        sent.gained += gained;
        sent.missing = sent.missing.saturating_sub(1);
        if sent.missing == 0 {
            self.conclude(at, id);
        }
    }

    pub(super) fn conclude(&mut self, at: usize, id: u64) {
        let now = self.regions[at].moment(self.plan.kind, self.time);
        let region = &mut self.regions[at];
        if let Some(sent) = region.in_flight.take_if(|sent| sent.id == id) {
            policy::conclude(&mut region.record.ledger, now, sent.wanted, sent.gained);
        }
        self.retry(at);
    }
}
