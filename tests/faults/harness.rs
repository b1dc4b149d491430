//! A tollgate under load, to inject a fault into, and the duration and strictness of a scenario.

use super::*;

/// The length of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    /// Requests per second.
    pub(super) rate: u32,
    pub(super) before: Duration,
    pub(super) fault: Duration,
    /// The observation time after the fault is healed.
    pub(super) after: Duration,
    /// When callers give up.
    pub(super) deadline: Duration,
    /// The store timeout given to tollgate as a flag.
    pub(super) store_timeout: &'static str,
    /// The store timeout as a duration.
    pub(super) timeout: Duration,
    /// The p99 at which things are called normal.
    pub(super) normal_p99: Duration,
    judged: Judged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    /// By outcomes and times.
    Fully,
    /// By outcomes, since the machine has other things to do.
    ByOutcomes,
}

impl Profile {
    /// The length of the table, on a machine that has nothing else to do. Deadlines are Envoy's and tollgate's own.
    pub(super) const FULL: Self = Self {
        rate: 3_000,
        before: Duration::from_secs(5),
        fault: Duration::from_secs(10),
        after: Duration::from_secs(8),
        deadline: Duration::from_millis(20),
        store_timeout: "10ms",
        timeout: Duration::from_millis(10),
        normal_p99: Duration::from_millis(5),
        judged: Judged::Fully,
    };

    /// Short, and patient: the tests run beside each other.
    pub(super) const SHORT: Self = Self {
        rate: 300,
        before: Duration::from_millis(400),
        fault: Duration::from_millis(1_000),
        after: Duration::from_millis(400),
        deadline: Duration::from_secs(2),
        store_timeout: "150ms",
        timeout: Duration::from_millis(150),
        normal_p99: Duration::from_millis(500),
        judged: Judged::ByOutcomes,
    };

    pub(super) fn is_timed(&self) -> bool {
        self.judged == Judged::Fully
    }
}

/// The server and its load.
#[derive(Debug)]
pub(super) struct Harness {
    pub(super) tollgate: Tollgate,
    pub(super) load: OpenLoop,
}

/// When a fault was there, by the load's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) fault: Duration,
    pub(super) healed: Duration,
}

/// Counters that get requests in turn.
pub(super) fn names() -> Vec<String> {
    (0..64).map(|number| format!("n{number}")).collect()
}

impl Harness {
    /// Serves rules that deny nothing, and sends requests for one counter of each name in turn.
    pub(super) fn start(store: &str, profile: &Profile, names: &[String]) -> Self {
        Self::with_rules(UNREACHED, store, profile, names)
    }

    pub(super) fn with_rules(yaml: &str, store: &str, profile: &Profile, names: &[String]) -> Self {
        let errors = ["--log-level", "error", "--on-store-error", "local"];
        let store = ["--store", store, "--store-timeout", profile.store_timeout];
        let tollgate = Tollgate::serving(yaml, &[store, errors].concat());
        let bodies = for_names(names);
        let plan = Plan { rate: profile.rate, connections: 4, deadline: profile.deadline, bodies };
        let load = OpenLoop::start(tollgate.grpc_port, plan);
        Self { tollgate, load }
    }

    /// Lets time pass: by the clock, or on a busy machine, until nothing has happened for so long.
    pub(super) fn calm(&self, profile: &Profile, time: Duration) {
        match profile.is_timed() {
            true => thread::sleep(time),
            false => self.load.wait_until_normal_for(time),
        }
    }

    /// Ends the load, and the server after it. Its metric has to know of every answer by policy.
    pub(super) fn end(self) -> Samples {
        let samples = self.load.end();
        let counted = self.tollgate.sum_of("tollgate_degraded_total").unwrap_or_default();
        assert!(counted >= samples.degraded() as f64, "{counted} of {} are counted", samples.degraded());
        samples
    }
}

/// The row of a scenario, and what it has yet to judge.
pub(super) struct Findings {
    pub(super) row: ReportRow,
    pub(super) samples: Samples,
    pub(super) times: Times,
}

impl Findings {
    /// Has a fault come over a store, and end before `inject` returns; no request may have an error.
    pub(super) fn of(
        fault: impl Display,
        profile: &Profile,
        store: &str,
        names: &[String],
        inject: impl FnOnce(),
    ) -> Self {
        let harness = Harness::start(store, profile, names);
        harness.calm(profile, profile.before);
        let fault_begun = harness.load.now();
        inject();
        let times = Times { fault: fault_begun, healed: harness.load.now() };
        harness.calm(profile, profile.after);
        let samples = harness.end();
        let mut row = ReportRow::new(fault, profile);
        row.no_errors(&samples);
        Self { row, samples, times }
    }

    pub(super) fn during(&self) -> Samples {
        self.samples.between(self.times.fault, self.times.healed)
    }

    pub(super) fn normal_within(&mut self, limit: Duration, since: &str) {
        self.row.normal_within(&self.samples, self.times, limit, since);
    }
}
