//! The control law: from smoothed utilization to the part of all requests that passes.

use std::{collections::VecDeque, time::Duration};

use super::{
    GateCounts, PassRates, SharedSums, SheddingGate, SheddingPolicy, SheddingReading, SheddingState,
    UtilizationSums,
};
use tollgate_core::clock::Timestamp;

/// Time by which reports lag behind the requests that they are about: a service measures over about a second, and reports
/// when it has responded.
const REPORT_LAG: Duration = Duration::from_secs(1);

/// Longest time between two updates that counts: a process that was stopped does not catch up.
const MAX_STEP: Duration = Duration::from_secs(2);

/// Part of the way to the computed value that remains after one second.
const REMAINDER_PER_SECOND: f64 = 0.1;

/// Factor by which the passing part falls at most in one second.
const MAX_FALL_PER_SECOND: f64 = 0.5;

/// Likewise where only critical requests are left to shed, so that they outlast a queue that drains.
const MAX_CRITICAL_FALL_PER_SECOND: f64 = 0.95;

/// The passing part grows in one second by at most this part of itself, and by [`MAX_RISE_PER_SECOND`].
const MAX_GROWTH_PER_SECOND: f64 = 0.18;

const MAX_RISE_PER_SECOND: f64 = 0.01;

/// Part of the requests that passes, adjusted so that the smoothed utilization comes to the target.
///
/// The rule of proportion of Kubernetes' HorizontalPodAutoscaler, with the load in place of the replicas: utilization
/// grows with the part that passes, so the right part is the part that passed times target over utilization. Both are
/// smoothed over the same time, so that a part that was changed since does not count twice; that is what keeps such a
/// control with slow reports from oscillating. A utilization near 1 has no proportion any more, since it cannot grow, and
/// counts as more. The part moves by a bounded factor per second, faster down than up. Priorities as in DAGOR (Zhou et
/// al., "Overload control for scaling WeChat microservices", 2018), and in Stripe's worker utilization load shedder.
#[derive(Clone, Debug)]
pub struct SheddingController {
    passed: f64,
    /// The passing parts of the last seconds, each with the time from which on it applied.
    recent: VecDeque<(Timestamp, f64)>,
    updated_at: Option<Timestamp>,
}

impl Default for SheddingController {
    fn default() -> Self {
        Self { passed: 1.0, recent: VecDeque::new(), updated_at: None }
    }
}

#[allow(clippy::float_arithmetic)] // A control law over measurements: an error of rounding does not matter.
impl SheddingController {
    /// The part of all requests that passes, 0 to 1.
    pub const fn passed(&self) -> f64 {
        self.passed
    }

    /// The part that passed when the work was done that is reported now.
    pub fn passed_when_reported(&self, now: Timestamp) -> f64 {
        let applied = self.recent.iter().rev().find(|(since, _)| now.since(*since) >= REPORT_LAG);
        applied.or_else(|| self.recent.front()).map_or(self.passed, |(_, passed)| *passed)
    }

    /// Adjusts the passing part to what is known at `now`, and returns the rates of the priorities.
    pub fn update(
        &mut self,
        policy: &SheddingPolicy,
        reading: &SheddingReading,
        now: Timestamp,
    ) -> PassRates {
        let SheddingReading { sums, report_age } = reading;
        let shares = sums.shares();
        let is_first = self.updated_at.is_none();
        let step = self.updated_at.map_or(MAX_STEP, |at| now.since(at)).min(MAX_STEP).as_secs_f64();
        self.updated_at = Some(now);
        let is_stale = report_age.is_none_or(|age| age > policy.stale_after);
        let wanted = match (is_stale, sums.smoothed(), sums.passed_part()) {
            (false, Some(utilization), Some(passed)) => {
                if is_first {
                    // An instance that starts adopts the part of the others.
                    self.passed = passed.clamp(policy.floor, 1.0);
                }
                passed * policy.target / counted(utilization, policy.target).max(f64::EPSILON)
            }
            // Without a report there is nothing to shed for.
            _ => f64::INFINITY,
        };
        let [critical, ..] = shares;
        // At this part only the critical requests pass, and the floor of the others.
        let critical = critical * (1.0 - policy.floor) + policy.floor;
        self.passed = self.limited(wanted, critical, step).clamp(policy.floor, 1.0);
        self.remember(now);
        PassRates::of(self.passed, shares, policy.floor)
    }

    /// The next passing part on the way to `wanted`. Only critical requests pass below the part `critical`.
    fn limited(&self, wanted: f64, critical: f64, step: f64) -> f64 {
        let lowest_critical = self.passed.min(critical) * MAX_CRITICAL_FALL_PER_SECOND.powf(step);
        let lowest = (self.passed * MAX_FALL_PER_SECOND.powf(step)).max(lowest_critical);
        let highest = self.passed * (1.0 + MAX_GROWTH_PER_SECOND * step) + MAX_RISE_PER_SECOND * step;
        let ratio = (wanted / self.passed).clamp(f64::EPSILON, f64::MAX);
        let moved = self.passed * ratio.powf(1.0 - REMAINDER_PER_SECOND.powf(step));
        moved.min(highest).max(lowest)
    }

    fn remember(&mut self, now: Timestamp) {
        // A clock that was set back must not let them accumulate until it is where it was.
        self.recent.retain(|(since, _)| *since <= now);
        // The last one before the lag still applies.
        while self.recent.get(1).is_some_and(|(since, _)| now.since(*since) >= REPORT_LAG) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, self.passed));
    }
}

/// The utilization as it counts: more from the middle between target and 1 on, twice itself at 1.
#[allow(clippy::float_arithmetic)]
fn counted(utilization: f64, target: f64) -> f64 {
    let middle = f64::midpoint(target, 1.0);
    let beyond = ((utilization - middle) / (1.0 - middle)).clamp(0.0, 1.0);
    utilization * (1.0 + beyond)
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn memory_is_bounded_after_the_clock_was_set_back() {
        let policy = SheddingPolicy {
            target: 0.8,
            half_life: SheddingPolicy::DEFAULT_HALF_LIFE,
            floor: SheddingPolicy::DEFAULT_FLOOR,
            stale_after: SheddingPolicy::DEFAULT_STALE_AFTER,
        };
        let reading = SheddingReading { report_age: Some(Duration::ZERO), ..SheddingReading::default() };
        let mut controller = SheddingController::default();
        let hour = Timestamp::from_micros(3_600_000_000);
        let seconds = (0..100).map(|second| Timestamp::from_micros(second * 1_000_000));
        for now in [hour].into_iter().chain(seconds) {
            controller.update(&policy, &reading, now);
            assert!(controller.recent.len() <= 16, "{} entries", controller.recent.len());
        }
    }
}
