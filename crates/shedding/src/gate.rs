//! The part of a rule that requests use: their priorities, the pass rates, and counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Utilization;

/// Snapshot of a rule's pass rates, and the counts since its start. Requests never wait here.
#[derive(Debug)]
pub struct SheddingGate {
    rates: AtomicU64,
    /// Reports that were not taken yet: their number, and the sum of their units in the lower bits.
    reports: AtomicU64,
    requested: [AtomicU64; Priority::COUNT],
    shed: [AtomicU64; Priority::COUNT],
    state: Mutex<SheddingState>,
}

/// Counts of each priority since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Requests, whatever their hits: clients choose these.
    pub requested: [u64; Priority::COUNT],
    /// Hits shed, or in shadow mode those that would have been.
    pub shed: [u64; Priority::COUNT],
}

/// State of a rule as computed last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SheddingState {
    /// Smoothed utilization; `None` if it is unknown.
    pub utilization: Option<f64>,
    /// Time since the last report; `None` if there was none.
    pub report_age: Option<Duration>,
    /// Part of all requests that passes.
    pub passed: f64,
    /// Pass rates of the priorities.
    pub rates: PassRates,
    /// Whether all instances' reports count, and not only this one's.
    pub is_shared: bool,
}

impl Default for SheddingState {
    fn default() -> Self {
        Self { utilization: None, report_age: None, passed: 1.0, rates: PassRates::OPEN, is_shared: false }
    }
}

/// Bits of the sum in the count of reports: enough for all reports that the rest can count.
const SUM_BITS: u32 = 40;

impl Default for SheddingGate {
    fn default() -> Self {
        Self {
            rates: AtomicU64::new(PassRates::OPEN.to_word()),
            reports: AtomicU64::new(0),
            requested: Default::default(),
            shed: Default::default(),
            state: Mutex::default(),
        }
    }
}

impl SheddingGate {
    /// Decides a request of this number of hits, and counts it. `random` is called if the request may be shed.
    pub fn admit(&self, priority: Priority, hits: u64, random: impl FnOnce() -> u16) -> bool {
        add(&self.requested, priority, 1);
        let rates = self.rates();
        let is_admitted = rates == PassRates::OPEN || rates.admits(priority, random());
        if !is_admitted {
            add(&self.shed, priority, hits);
        }
        is_admitted
    }

    /// Adds a report.
    pub fn report(&self, utilization: Utilization) {
        // More reports than fit are left out; they are taken twice a second.
        let report = 1_u64 << SUM_BITS | u64::from(utilization.units());
        let added = |reports: u64| reports.checked_add(report);
        let _ = self.reports.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// Takes the reports since the last call; returns their mean utilization.
    #[allow(clippy::float_arithmetic)]
    pub fn take_reports(&self) -> Option<f64> {
        let reports = self.reports.swap(0, Ordering::Relaxed);
        let (count, sum) = (reports >> SUM_BITS, reports & ((1 << SUM_BITS) - 1));
        let full = f64::from(Utilization::FULL.units());
        (count > 0).then(|| sum as f64 / count as f64 / full)
    }

    /// Counts since the start.
    pub fn counts(&self) -> GateCounts {
        let read = |counts: &[AtomicU64; Priority::COUNT]| {
            counts.each_ref().map(|count| count.load(Ordering::Relaxed))
        };
        GateCounts { requested: read(&self.requested), shed: read(&self.shed) }
    }

    /// The rates that apply now.
    pub fn rates(&self) -> PassRates {
        PassRates::from_word(self.rates.load(Ordering::Relaxed))
    }

    /// Whether there are reports that were not taken yet.
    pub fn has_reports(&self) -> bool {
        self.reports.load(Ordering::Relaxed) > 0
    }

    /// Applies the rates of a state to all later requests.
    pub fn set(&self, state: SheddingState) {
        self.rates.store(state.rates.to_word(), Ordering::Relaxed);
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The state as computed last. Not for requests.
    pub fn state(&self) -> SheddingState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(counts: &[AtomicU64; Priority::COUNT], priority: Priority, hits: u64) {
    if let Some(count) = counts.get(priority.index()) {
        count.fetch_add(hits, Ordering::Relaxed);
    }
}

/// Probabilities of passing, one for each priority, in 1/65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassRates([u16; Priority::COUNT]);

impl PassRates {
    /// All requests pass.
    pub const OPEN: Self = Self([u16::MAX; Priority::COUNT]);

    /// Returns the rates with which the part `passed` of all requests passes, if these shares of them have each priority:
    /// requests of a higher priority first, and the part `floor` of each.
    #[allow(clippy::float_arithmetic)] // Probabilities.
    pub fn of(passed: f64, shares: [f64; Priority::COUNT], floor: f64) -> Self {
        let floor = floor.clamp(0.0, 1.0);
        if passed >= 1.0 {
            return Self::OPEN;
        }
        let mut left = (passed - floor * shares.iter().sum::<f64>()).max(0.0);
        Self(shares.map(|share| {
            let above_floor = share * (1.0 - floor);
            let taken = left.min(above_floor);
            // Where no requests are known, there is room for one unless higher priorities have taken all of it.
            let part = if above_floor > 0.0 { taken / above_floor } else { f64::from(u8::from(left > 0.0)) };
            left -= taken;
            // Rounded up, so that the floor is one; a cast saturates.
            ((floor + part * (1.0 - floor)) * f64::from(u16::MAX)).ceil() as u16
        }))
    }

    /// The rate of a priority, 0 to 1.
    #[allow(clippy::float_arithmetic)]
    pub fn of_priority(self, priority: Priority) -> f64 {
        f64::from(self.threshold(priority)) / f64::from(u16::MAX)
    }

    /// Whether a request passes, given a random number.
    pub fn admits(self, priority: Priority, random: u16) -> bool {
        let threshold = self.threshold(priority);
        threshold == u16::MAX || random < threshold
    }

    fn threshold(self, priority: Priority) -> u16 {
        self.0.get(priority.index()).copied().unwrap_or(u16::MAX)
    }

    /// The rates in one word.
    pub(super) fn to_word(self) -> u64 {
        self.0.into_iter().fold(0, |word, rate| word << 16 | u64::from(rate))
    }

    /// The rates of a word.
    #[allow(clippy::cast_possible_truncation)] // Each takes the lowest 16 bits.
    pub(super) const fn from_word(word: u64) -> Self {
        Self([(word >> 48) as u16, (word >> 32) as u16, (word >> 16) as u16, word as u16])
    }
}

tollgate_core::named! {
    /// Priority of a request; the lowest is shed first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Priority {
        /// Shed last.
        Critical = "critical",
        /// Shed after default requests.
        High = "high",
        /// Requests without a priority, or with an unknown one.
        #[default]
        Default = "default",
        /// Shed first.
        Low = "low",
    }
}

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the priority of that name in any case, and the default one for any other text.
    pub fn of(name: &str) -> Self {
        let named = Self::ALL.into_iter().find(|priority| priority.name().eq_ignore_ascii_case(name));
        named.unwrap_or_default()
    }
}
