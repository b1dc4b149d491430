//! A tollgate under load, to inject a fault into.

use std::{thread, time::Duration};

use tempfile::TempDir;

use super::{
    messages::for_names,
    open_loop::{OpenLoop, Plan},
    profile::Profile,
    samples::Samples,
};
use crate::support::{
    http,
    tollgate::{Tollgate, rules},
};

/// Limits that nothing reaches, and a window that does not end.
const RULES: &str =
    "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: year, requests_per_unit: 4000000000}\n";

/// The server and its load.
#[derive(Debug)]
pub(super) struct Harness {
    pub(super) tollgate: Tollgate,
    pub(super) load: OpenLoop,
    _config: TempDir,
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
        Self::with_rules(RULES, store, profile, names)
    }

    pub(super) fn with_rules(yaml: &str, store: &str, profile: &Profile, names: &[String]) -> Self {
        let config = rules(yaml);
        let arguments = [
            "--store",
            store,
            "--store-timeout",
            profile.store_timeout,
            "--log-level",
            "error",
            "--on-store-error",
            "local",
        ];
        let tollgate = Tollgate::start(config.path(), &arguments);
        let bodies = for_names(names);
        let plan = Plan { rate: profile.rate, connections: 4, deadline: profile.deadline, bodies };
        let load = OpenLoop::start(tollgate.grpc_port, plan);
        Self { tollgate, load, _config: config }
    }

    /// Lets a fault be there for its time.
    pub(super) fn during(&self, profile: &Profile, begin: impl FnOnce(), end: impl FnOnce()) -> Times {
        self.calm(profile, profile.before);
        let fault = self.load.now();
        begin();
        thread::sleep(profile.fault);
        end();
        self.healed(profile, fault)
    }

    /// Lets things calm down after a fault that was healed now.
    pub(super) fn healed(&self, profile: &Profile, fault: Duration) -> Times {
        let healed = self.load.now();
        self.calm(profile, profile.after);
        Times { fault, healed }
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
        let counted = metric(&self.tollgate, "tollgate_degraded_total");
        assert!(counted >= samples.degraded() as f64, "{counted} of {} are counted", samples.degraded());
        samples
    }
}

/// The sum of a metric, whatever its labels say.
fn metric(tollgate: &Tollgate, name: &str) -> f64 {
    let page = http::get(&tollgate.url("/metrics")).body;
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next())??.parse::<f64>().ok()
    });
    values.sum()
}
