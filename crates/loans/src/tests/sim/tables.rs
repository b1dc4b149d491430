//! Region tables of a run: the instances of a region, the record of its tables in its store, and its file.

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use crate::shares::{Demarcation, RegionShares, RegionWeight, RegionWeights, TableState, WeightTable};
use tollgate_core::algorithm::{Algorithm, Parameters, Policy};
use tollgate_core::quota::{Quota, Window};
use tollgate_core::{clock::Timestamp, hash_of};

use super::plan::Plan;
use crate::fault::{Fault, is_injected};
use crate::{table::RegionName, terms::LimitKind};

/// A region's file: weights by region, 0 for a lost one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) generation: u64,
    pub(crate) weights: Vec<u32>,
}

/// An instance of a region.
#[derive(Debug)]
pub(crate) struct Instance {
    demarcation: Demarcation,
    shares: RegionShares,
    /// Generation that its heartbeats state; 0 before the first one.
    stated: u64,
    /// Share as of a second: shares that rise later in it are not noticed.
    base: Cell<Option<(u64, u32)>>,
}

/// Instances and store of one region, as far as tables are concerned.
#[derive(Debug)]
pub(crate) struct Tables {
    own: RegionName,
    instances: Vec<Instance>,
    /// The record in the store.
    record: String,
    /// Contents of the file, the newest last.
    files: Vec<File>,
}

pub(crate) fn name(at: usize) -> RegionName {
    format!("region-{at}").parse().expect("a name")
}

impl File {
    fn table(&self, own: &RegionName) -> WeightTable {
        let weight =
            |(at, weight): (usize, &u32)| RegionWeight { name: name(at).as_str().into(), weight: *weight };
        let weights = RegionWeights::new(self.weights.iter().enumerate().map(weight), own.as_str());
        let digest = hash_of(format!("{:?}", self.weights).as_bytes());
        WeightTable { generation: self.generation, digest, weights: weights.expect("a table") }
    }
}

impl Instance {
    fn new(file: &File, own: &RegionName) -> Self {
        let demarcation = Demarcation::new(file.table(own));
        Self { shares: demarcation.shares(), demarcation, stated: 0, base: Cell::default() }
    }

    /// Uses the shares of its tables from here on.
    fn publish(&mut self) {
        self.shares = self.demarcation.shares();
        self.base.set(None);
    }

    /// Takes over the record, and replaces it if it lacks a table.
    fn take_over(&mut self, record: &mut String, is_running: bool) {
        if is_injected(Fault::StartsAlone) {
            return;
        }
        if let Some(new) = self.demarcation.take_over(record, is_running).expect("a record") {
            *record = new;
        }
        self.publish();
    }
}

impl Tables {
    pub(crate) fn new(own: RegionName, file: &File, instances: usize) -> Self {
        let instance = |_| Instance::new(file, &own);
        let instances = (0..instances).map(instance).collect();
        let mut tables = Self { instances, record: String::new(), files: vec![file.clone()], own };
        tables.compare();
        tables
    }

    pub(crate) fn instances(&self) -> usize {
        self.instances.len()
    }

    /// Replaces the file, which the instances load later.
    pub(crate) fn write(&mut self, file: File) {
        if self.files.last().is_none_or(|last| last.generation < file.generation) {
            self.files.push(file);
        }
    }

    /// Lets an instance load the file.
    pub(crate) fn load(&mut self, at: usize) {
        let Some(file) = self.files.last() else { return };
        let instance = &mut self.instances[at];
        // Too many changes wait, or it is the active one.
        _ = instance.demarcation.propose(file.table(&self.own));
        instance.publish();
    }

    /// Starts an instance again, with the file or the one before.
    pub(crate) fn restart(&mut self, at: usize, is_late: bool) {
        let before = self.files.len().checked_sub(2).filter(|_| is_late);
        let file = before.map_or(self.files.last(), |before| self.files.get(before));
        let Some(file) = file else { return };
        self.instances[at] = Instance::new(file, &self.own);
        let is_running = self.instances.iter().any(|other| other.stated == file.generation);
        self.instances[at].take_over(&mut self.record, is_running);
    }

    /// Starts all instances with this file and an empty store.
    pub(crate) fn join(&mut self, file: &File) {
        *self = Self::new(self.own.clone(), file, self.instances.len());
    }

    /// Compares the tables of all instances with the record, and announces the table that all of them have.
    pub(crate) fn compare(&mut self) {
        let stated: Vec<u64> = self.instances.iter().map(|instance| instance.stated).collect();
        for (at, instance) in self.instances.iter_mut().enumerate() {
            let generation = instance.demarcation.table().generation;
            let mut others = stated.iter().enumerate().filter(|(other, _)| *other != at);
            let is_running = others.any(|(_, stated)| *stated == generation);
            instance.take_over(&mut self.record, is_running);
            instance.stated = generation;
            if stated.iter().all(|stated| *stated == generation) {
                instance.demarcation.lowered(generation);
            }
        }
    }

    pub(crate) fn announced(&mut self, at: usize, region: &RegionName, state: TableState, micros: u64) {
        let instance = &mut self.instances[at];
        if instance.demarcation.announced(region.as_str(), state, Timestamp::from_micros(micros)) {
            instance.publish();
        }
    }

    pub(crate) fn state(&self, at: usize) -> TableState {
        self.instances[at].demarcation.state()
    }

    pub(crate) fn has_table(&self, at: usize, state: &TableState) -> bool {
        self.instances[at].demarcation.has_table(state)
    }

    /// Other regions with a share, by the table of an instance.
    pub(crate) fn peers(&self, at: usize) -> Vec<RegionName> {
        let regions = self.instances[at].demarcation.table().weights.regions();
        let names = regions.filter(|region| region.weight > 0).map(|region| &*region.name);
        names.filter(|name| *name != self.own.as_str()).map(|name| name.parse().expect("a name")).collect()
    }

    /// Share of a limit without loans, as an instance has it.
    pub(crate) fn base(&self, at: usize, plan: &Plan, micros: u64) -> u32 {
        let Instance { shares, base, .. } = &self.instances[at];
        let second = micros / 1_000_000;
        if let Some((known, base)) = base.get()
            && known == second
        {
            return base;
        }
        let now = if is_injected(Fault::RaisedAtOnce) { u64::MAX } else { micros };
        let now = || Timestamp::from_micros(now);
        let share = shares.share(plan.limit, &policy(plan), now, || hash_of(b"counter"));
        base.set(Some((second, share)));
        share
    }
}

/// The limit as decisions have it.
fn policy(plan: &Plan) -> Policy {
    let (algorithm, window, lease_ttl) = match plan.kind {
        LimitKind::FixedWindow { window } => (Algorithm::FixedWindow, window, 1),
        LimitKind::SlidingWindow { window } => (Algorithm::SlidingWindow, window, 1),
        LimitKind::SlidingWindowLog { window } => (Algorithm::SlidingWindowLog, window, 1),
        LimitKind::TokenBucket { window, .. } => (Algorithm::TokenBucket, window, 1),
        LimitKind::Concurrency { lease_ttl } => (Algorithm::Concurrency, 1, lease_ttl),
    };
    let burst = u32::try_from(plan.burst).ok().and_then(NonZeroU32::new).map(NonZeroU32::get);
    let parameters =
        Parameters { burst, lease_ttl: Duration::from_micros(lease_ttl), ..Parameters::default() };
    let quota = Quota { limit: plan.limit.into(), window: Window::from_seconds(window).expect("a window") };
    Policy::nearest(algorithm, quota, &parameters)
}
