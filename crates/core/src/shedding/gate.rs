//! The part of a rule that requests use.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{PassRates, Priority, SheddingController, SheddingReading, Utilization};

/// Snapshot of a rule's pass rates, and the counts since its start. Requests never wait here.
#[derive(Debug)]
pub struct SheddingGate {
    rates: AtomicU64,
    /// Reports that were not taken yet: their number, and the sum of their units in the lower bits.
    reports: AtomicU64,
    requested: [AtomicU64; Priority::COUNT],
    shed: [AtomicU64; Priority::COUNT],
    /// Utilization, part that passes, and seconds since the last report as of the last computation, for people: the bits
    /// of numbers.
    shown: [AtomicU64; 3],
}

/// Hits of each priority since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Requested.
    pub requested: [u64; Priority::COUNT],
    /// Shed, or in shadow mode those that would have been.
    pub shed: [u64; Priority::COUNT],
}

/// State of a rule as computed last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SheddingState {
    /// Smoothed utilization; `None` if it is unknown.
    pub utilization: Option<f64>,
    /// Seconds since the last report; `None` if there was none.
    pub report_age_s: Option<f64>,
    /// Part of all requests that passes.
    pub passed: f64,
    /// Pass rates of the priorities.
    pub rates: PassRates,
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
            shown: [f64::NAN, 1.0, f64::NAN].map(|number| AtomicU64::new(number.to_bits())),
        }
    }
}

impl SheddingGate {
    /// Decides a request of so many hits, and counts it. `random` is called if the request may be shed.
    pub fn admit(&self, priority: Priority, hits: u64, random: impl FnOnce() -> u16) -> bool {
        add(&self.requested, priority, hits);
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

    /// Applies rates to all later requests, and shows the state from which they follow.
    pub fn set(&self, rates: PassRates, reading: &SheddingReading, controller: &SheddingController) {
        let [utilization, passed, age] = &self.shown;
        let seconds = reading.report_age.map_or(f64::NAN, |age| age.as_secs_f64());
        age.store(seconds.to_bits(), Ordering::Relaxed);
        utilization.store(reading.sums.smoothed().unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
        passed.store(controller.passed().to_bits(), Ordering::Relaxed);
        self.rates.store(rates.to_word(), Ordering::Relaxed);
    }

    /// The state as computed last.
    pub fn state(&self) -> SheddingState {
        let [utilization, passed, age] =
            self.shown.each_ref().map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)));
        SheddingState {
            utilization: Some(utilization).filter(|utilization| !utilization.is_nan()),
            report_age_s: Some(age).filter(|age| !age.is_nan()),
            passed,
            rates: self.rates(),
        }
    }
}

fn add(counts: &[AtomicU64; Priority::COUNT], priority: Priority, hits: u64) {
    if let Some(count) = counts.get(priority.index()) {
        count.fetch_add(hits, Ordering::Relaxed);
    }
}
