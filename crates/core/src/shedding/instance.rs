//! One instance's part in a rule: what it counted since the last time, and what follows from the sums.

use std::time::Duration;

use super::{
    GateCounts, SharedSums, SheddingController, SheddingGate, SheddingPolicy, SheddingReading, SheddingState,
    UtilizationSums,
};
use crate::clock::Timestamp;

/// Longest interval that counts in full.
const MAX_INTERVAL: Duration = Duration::from_secs(2);

/// Weight, in seconds or requests, below which sums are as good as empty.
const UNUSED_WEIGHT: f64 = 1e-3;

/// State of one rule on one instance, besides its gate.
#[derive(Debug, Default)]
pub struct SheddingInstance {
    controller: SheddingController,
    /// The reports to this instance alone, for when the shared ones cannot be read.
    own: SharedSums,
    /// Own sums as of the last interval.
    reading: SheddingReading,
    counted: GateCounts,
    begun_at: Option<Timestamp>,
}

impl SheddingInstance {
    /// Ends an interval at `now`: returns what was reported and requested in it. In shadow mode all requests passed, so
    /// `is_enforced` is false.
    #[allow(clippy::float_arithmetic)]
    pub fn end_interval(
        &mut self,
        policy: &SheddingPolicy,
        gate: &SheddingGate,
        is_enforced: bool,
        now: Timestamp,
    ) -> UtilizationSums {
        let begun_at = self.begun_at.replace(now);
        let counts = gate.counts();
        let before = std::mem::replace(&mut self.counted, counts);
        let mut interval = UtilizationSums::default();
        let hits = counts.requested.into_iter().zip(before.requested);
        for (sum, (now, before)) in interval.requested.iter_mut().zip(hits) {
            *sum = now.saturating_sub(before) as f64;
        }
        // Reports from before the first interval are about an unknown part.
        if let (Some(utilization), Some(begun_at)) = (gate.take_reports(), begun_at) {
            let time = now.since(begun_at).min(MAX_INTERVAL);
            // By time, so that a service does not count more while it responds to more.
            let weight = time.as_secs_f64();
            let passed = if is_enforced { self.controller.passed_when_reported(now) } else { 1.0 };
            (interval.weight, interval.utilization, interval.passed) =
                (weight, utilization * weight, passed * weight);
        }
        self.reading = self.own.add(policy, &interval, now);
        interval
    }

    /// Applies the sums of all instances, or without them its own.
    pub fn apply(
        &mut self,
        policy: &SheddingPolicy,
        gate: &SheddingGate,
        shared: Option<SheddingReading>,
        now: Timestamp,
    ) {
        let reading = shared.unwrap_or(self.reading);
        let rates = self.controller.update(policy, &reading, now);
        let SheddingReading { sums, report_age } = reading;
        gate.set(SheddingState {
            utilization: sums.smoothed(),
            report_age,
            passed: self.controller.passed(),
            rates,
            is_shared: shared.is_some(),
        });
    }

    /// Whether the rule is not in use: it is open, and nothing was requested or reported for a long time. If so, forgets
    /// everything, so that it adopts the part of the other instances once it is used again.
    pub fn forget_if_unused(&mut self, gate: &SheddingGate) -> bool {
        let UtilizationSums { weight, requested, .. } = self.reading.sums;
        let is_unused = self.controller.passed() >= 1.0
            && weight < UNUSED_WEIGHT
            && requested.iter().all(|hits| *hits < UNUSED_WEIGHT)
            && !gate.has_reports()
            && gate.counts() == self.counted;
        if is_unused {
            *self = Self { counted: self.counted, ..Self::default() };
        }
        is_unused
    }
}
