//! A simulated service under the controller, and properties of the rates.

mod reports;

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use tollgate_core::clock::Timestamp;

const POLICY: SheddingPolicy = SheddingPolicy {
    target: 0.8,
    half_life: SheddingPolicy::DEFAULT_HALF_LIFE,
    floor: SheddingPolicy::DEFAULT_FLOOR,
    stale_after: SheddingPolicy::DEFAULT_STALE_AFTER,
};

/// Time of one step of the simulation, in milliseconds.
const STEP_MS: u64 = 50;

/// Time between two intervals of an instance, in milliseconds.
const INTERVAL_MS: u64 = 500;

/// A service that reports the busy part of its last second, with a queue, behind instances that share sums.
struct Simulation {
    policy: SheddingPolicy,
    instances: Vec<(SheddingGate, SheddingInstance)>,
    shared: Option<SharedSums>,
    /// Requests per second that the service can do.
    capacity: f64,
    /// Requests per second of each priority.
    offered: [f64; Priority::COUNT],
    /// Time until a report arrives, in milliseconds.
    report_delay_ms: u64,
    /// Requests that may wait, in seconds of work.
    queue_s: f64,
    /// Largest error of a report.
    noise: f64,
    reports: bool,
    backlog: f64,
    busy: VecDeque<f64>,
    under_way: VecDeque<(u64, f64)>,
    random: u64,
    now_ms: u64,
    /// Requests that were offered and that passed, by priority, since they were last read.
    seen: [[f64; 2]; Priority::COUNT],
}

impl Simulation {
    fn new(instances: usize) -> Self {
        Self {
            policy: POLICY,
            instances: (0..instances).map(|_| Default::default()).collect(),
            shared: (instances > 1).then(SharedSums::default),
            capacity: 500.0,
            offered: [300.0, 0.0, 600.0, 600.0],
            report_delay_ms: 500,
            queue_s: 0.5,
            noise: 0.0,
            reports: true,
            backlog: 0.0,
            busy: VecDeque::new(),
            under_way: VecDeque::new(),
            random: 7,
            now_ms: 1_000_000,
            seen: Default::default(),
        }
    }

    fn random(&mut self) -> u16 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 48) as u16
    }

    fn step(&mut self) {
        let seconds = STEP_MS as f64 / 1_000.0;
        let count = self.instances.len() as f64;
        let mut admitted = 0.0;
        for priority in Priority::ALL {
            let offered = self.offered[priority.index()] * seconds / count;
            for (gate, _) in &self.instances {
                // The expected number, so that chance does not decide a test.
                let passed = offered * gate.rates().of_priority(priority);
                // In hundredths of a request.
                (0..(offered * 100.0) as u64).for_each(|_| _ = gate.admit(priority, 1, || 0));
                admitted += passed;
                self.seen[priority.index()][0] += offered;
                self.seen[priority.index()][1] += passed;
            }
        }
        self.backlog += admitted;
        let done = self.backlog.min(self.capacity * seconds);
        self.backlog = (self.backlog - done).min(self.queue_s * self.capacity);
        self.busy.push_back(done / (self.capacity * seconds));
        if self.busy.len() > 1_000 / STEP_MS as usize {
            self.busy.pop_front();
        }
        self.now_ms += STEP_MS;
        let error = (f64::from(self.random()) / 65_535.0 - 0.5) * 2.0 * self.noise;
        self.under_way.push_back((self.now_ms + self.report_delay_ms, (self.utilization() + error).max(0.0)));
        while self.under_way.front().is_some_and(|(due, _)| *due <= self.now_ms) {
            let (_, utilization) = self.under_way.pop_front().expect("present");
            let at = usize::from(self.random()) % self.instances.len();
            if self.reports {
                self.instances[at].0.report(Utilization::of_ratio(utilization).expect("positive"));
            }
        }
        self.end_intervals();
    }

    /// Instances take turns, as they do not start at the same time.
    fn end_intervals(&mut self) {
        let now = Timestamp::from_micros(self.now_ms * 1_000);
        for (at, (gate, instance)) in self.instances.iter_mut().enumerate() {
            if (self.now_ms + at as u64 * 150) % INTERVAL_MS >= STEP_MS {
                continue;
            }
            let interval = instance.end_interval(&self.policy, gate, true, now);
            let shared = self.shared.as_mut().map(|shared| shared.add(&self.policy, &interval, now));
            instance.apply(&self.policy, gate, shared, now);
        }
    }

    fn utilization(&self) -> f64 {
        self.busy.iter().sum::<f64>() / self.busy.len().max(1) as f64
    }

    /// Runs for some seconds; returns the utilization after each.
    fn run(&mut self, seconds: usize) -> Vec<f64> {
        let second = |simulation: &mut Self| {
            (0..1_000 / STEP_MS).for_each(|_| simulation.step());
            simulation.utilization()
        };
        (0..seconds).map(|_| second(self)).collect()
    }

    /// The part of the requests of a priority that passed since the last call.
    fn passed(&mut self, priority: Priority) -> f64 {
        let [offered, passed] = std::mem::take(&mut self.seen[priority.index()]);
        passed / offered
    }
}

/// The first second from which on utilization stays within this part of the target.
fn settled_after(utilizations: &[f64], part: f64) -> usize {
    let is_off = |utilization: &f64| (utilization - POLICY.target).abs() > POLICY.target * part;
    utilizations.iter().rposition(is_off).map_or(0, |last| last + 1)
}

#[test]
fn a_service_offered_three_times_its_capacity_settles_at_the_target_and_critical_requests_pass() {
    for (delay, queue) in [(100, 0.0), (500, 0.5), (1_000, 1.0), (2_000, 0.5)] {
        for instances in [1, 3] {
            let mut simulation =
                Simulation { report_delay_ms: delay, queue_s: queue, ..Simulation::new(instances) };
            let utilizations = simulation.run(120);
            let case = format!("{delay} ms, {queue} s, {instances} instances");
            assert!(settled_after(&utilizations, 0.05) <= 30, "{case}: {utilizations:.3?}");
            let rates = Priority::ALL.map(|priority| simulation.passed(priority));
            assert!(rates[0] >= 0.99, "{case}: {rates:?}");
            assert!(rates[2] < 0.35 && rates[3] < 0.1 && rates[3] >= POLICY.floor, "{case}: {rates:?}");
        }
    }
}

#[test]
fn noise_of_the_reports_does_not_make_it_oscillate() {
    for half_life in [1, 3, 10] {
        let policy = SheddingPolicy { half_life: Duration::from_secs(half_life), ..POLICY };
        let mut simulation = Simulation { noise: 0.15, policy, ..Simulation::new(3) };
        let utilizations = simulation.run(240);
        assert!(settled_after(&utilizations, 0.1) <= 60, "{half_life} s: {utilizations:.3?}");
    }
}

#[test]
fn a_step_of_capacity_or_load_is_followed() {
    let (few, many) = ([150.0, 0.0, 600.0, 750.0], [150.0, 0.0, 2_000.0, 2_000.0]);
    let mut simulation = Simulation::new(3);
    for (capacity, offered) in [(500.0, few), (300.0, few), (800.0, few), (800.0, many)] {
        (simulation.capacity, simulation.offered) = (capacity, offered);
        assert!(settled_after(&simulation.run(60), 0.05) <= 30, "{capacity}: {offered:?}");
    }
}

#[test]
fn below_the_target_nothing_is_shed_and_after_an_overload_all_pass_again() {
    let mut simulation = Simulation::new(3);
    simulation.run(60);
    simulation.offered = [100.0, 0.0, 100.0, 100.0];
    simulation.run(30);
    simulation.seen = Default::default();
    simulation.run(30);
    assert_eq!(
        [Priority::Critical, Priority::Default, Priority::Low].map(|one| simulation.passed(one)),
        [1.0; 3]
    );
    let mut calm = Simulation { offered: [100.0, 100.0, 100.0, 90.0], noise: 0.01, ..Simulation::new(1) };
    calm.run(60);
    assert_eq!(Priority::ALL.map(|priority| calm.passed(priority)), [1.0; 4]);
}

#[test]
fn without_reports_a_rule_opens_gradually() {
    let mut simulation = Simulation::new(3);
    simulation.run(60);
    simulation.reports = false;
    simulation.run(8);
    simulation.passed(Priority::Low);
    simulation.run(2);
    assert!(simulation.passed(Priority::Low) < 0.05, "reports are not stale yet");
    simulation.run(2);
    simulation.passed(Priority::Default);
    simulation.run(1);
    let opening = simulation.passed(Priority::Default);
    assert!((0.1..0.9).contains(&opening), "{opening}");
    simulation.run(30);
    assert_eq!(simulation.instances[0].0.rates(), PassRates::OPEN);
}

#[test]
fn an_instance_that_starts_adopts_the_part_of_the_others() {
    let mut simulation = Simulation::new(3);
    simulation.run(60);
    let (gate, mut instance): (SheddingGate, SheddingInstance) = Default::default();
    let now = Timestamp::from_micros(simulation.now_ms * 1_000);
    let interval = instance.end_interval(&POLICY, &gate, true, now);
    let shared = simulation.shared.as_mut().map(|shared| shared.add(&POLICY, &interval, now));
    instance.apply(&POLICY, &gate, shared, now);
    simulation.instances[1] = (gate, instance);
    let utilizations = simulation.run(20);
    assert_eq!(settled_after(&utilizations, 0.1), 0, "{utilizations:.3?}");
}

#[test]
fn critical_requests_beyond_the_capacity_are_shed_too_and_instances_need_no_shared_sums() {
    let critical = Simulation { offered: [1_500.0, 0.0, 0.0, 100.0], ..Simulation::new(3) };
    let apart = Simulation { shared: None, ..Simulation::new(3) };
    for (mut simulation, part, most) in [(critical, 0.05, 60), (apart, 0.1, 45)] {
        let utilizations = simulation.run(120);
        assert!(settled_after(&utilizations, part) <= most, "{part}: {utilizations:.3?}");
    }
}

#[test]
fn in_shadow_mode_the_part_that_would_pass_does_not_fall_further_and_further() {
    let (gate, mut instance) = (SheddingGate::default(), SheddingInstance::default());
    for second in 0..60 {
        let now = Timestamp::from_micros(second * 1_000_000);
        gate.admit(Priority::Low, 1_000, || 0);
        gate.report(Utilization::of_ratio(0.88).expect("positive"));
        instance.end_interval(&POLICY, &gate, false, now);
        instance.apply(&POLICY, &gate, None, now);
    }
    let passed = gate.state().passed;
    assert!((passed - 0.8 / 0.88).abs() < 0.01, "{passed}");
}

#[test]
fn a_rule_that_is_not_used_is_forgotten_until_it_is() {
    let (gate, mut instance) = (SheddingGate::default(), SheddingInstance::default());
    let mut pass = |second: u64| {
        let now = Timestamp::from_micros(second * 1_000_000);
        let is_unused = instance.forget_if_unused(&gate);
        instance.end_interval(&POLICY, &gate, true, now);
        instance.apply(&POLICY, &gate, None, now);
        is_unused
    };
    assert!(pass(1) && pass(2));
    gate.admit(Priority::Low, 1, || 0);
    assert!(!pass(3) && !pass(4));
    assert!((5..120).any(pass), "it is forgotten in time");
}

#[test]
fn a_request_of_many_hits_is_one_request() {
    let (gate, mut instance) = (SheddingGate::default(), SheddingInstance::default());
    for (priority, hits) in Priority::ALL.into_iter().zip([1, (1 << 53) - 1, u64::MAX, 1]) {
        gate.admit(priority, hits, || 0);
    }
    let interval = instance.end_interval(&POLICY, &gate, true, Timestamp::from_micros(1_000_000));
    assert_eq!(interval.requested, [1.0; 4]);
}

#[test]
fn reports_that_were_taken_do_not_count_again() {
    let gate = SheddingGate::default();
    gate.report(Utilization::of_units(5_000));
    gate.report(Utilization::FULL);
    assert_eq!((gate.take_reports(), gate.take_reports()), (Some(0.75), None));
}

fn shares() -> impl Strategy<Value = [f64; Priority::COUNT]> {
    prop::array::uniform4(0_u32..1_000).prop_map(|hits| {
        let sums = UtilizationSums { requested: hits.map(f64::from), ..Default::default() };
        sums.shares()
    })
}

proptest! {
    #[test]
    fn rates_are_never_below_the_floor_and_a_lower_priority_never_passes_more(
        passed in 0.0_f64..1.2, shares in shares(), floor in 0.0_f64..1.0,
    ) {
        let rates = PassRates::of(passed, shares, floor);
        let each = Priority::ALL.map(|priority| rates.of_priority(priority));
        prop_assert!(each.iter().all(|rate| *rate >= floor && *rate <= 1.0), "{:?}", each);
        prop_assert!(each.is_sorted_by(|high, low| high >= low), "{:?}", each);
        // A lower one passes beyond the floor only if the higher ones pass as a whole.
        let is_partial = |rate: &&f64| **rate > floor + 1e-4 && **rate < 1.0;
        prop_assert!(each.iter().filter(is_partial).count() <= 1, "{:?}", each);
        let part: f64 = each.into_iter().zip(shares).map(|(rate, share)| rate * share).sum();
        prop_assert!(part >= passed.min(1.0).max(floor) - 1e-4 && part <= passed.max(floor) + 1e-3, "{}", part);
    }

    #[test]
    fn a_higher_utilization_never_lets_more_pass(
        low in 0_u16..20_000, more in 0_u16..10_000, before in 0.01_f64..1.0, target in 0.05_f64..0.95,
    ) {
        let policy = SheddingPolicy { target, ..POLICY };
        let after = |units: u16| {
            let utilization = f64::from(units) / 10_000.0;
            let sums = UtilizationSums { weight: 1.0, utilization, passed: before, requested: [1.0; 4] };
            let reading = SheddingReading { sums, report_age: Some(Duration::ZERO) };
            let mut controller = SheddingController::default();
            controller.update(&policy, &reading, Timestamp::from_micros(1_000_000));
            controller.update(&policy, &reading, Timestamp::from_micros(1_500_000));
            controller.passed()
        };
        prop_assert!(after(low) >= after(low.saturating_add(more)));
    }

    #[test]
    fn the_passing_part_stays_between_floor_and_one_whatever_is_reported(
        reports in prop::collection::vec((0.0_f64..3.0, 0_u64..20_000, prop::option::of(0_u64..20)), 1..60),
    ) {
        let mut controller = SheddingController::default();
        let mut now = 0;
        for (utilization, step_ms, age) in reports {
            now += step_ms * 1_000;
            let sums = UtilizationSums { weight: 0.5, utilization, passed: controller.passed() * 0.5, requested: [1.0; 4] };
            let reading = SheddingReading { sums, report_age: age.map(Duration::from_secs) };
            let before = controller.passed();
            controller.update(&POLICY, &reading, Timestamp::from_micros(now));
            prop_assert!((POLICY.floor..=1.0).contains(&controller.passed()));
            // Twice the largest step.
            prop_assert!(controller.passed() >= before * 0.25 - 1e-9 || before == 1.0);
        }
    }

    #[test]
    fn a_word_holds_the_rates(passed in 0.0_f64..1.0, shares in shares()) {
        let rates = PassRates::of(passed, shares, 0.01);
        prop_assert_eq!(PassRates::from_word(rates.to_word()), rates);
    }
}
