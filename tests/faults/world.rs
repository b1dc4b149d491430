//! A tollgate under load, for a fault to come over.

use std::{thread, time::Duration};

use tempfile::TempDir;

use super::{
    form::Form,
    load::{Load, Plan},
    requests::for_names,
    samples::Samples,
};
use crate::support::{
    http,
    tollgate::{Tollgate, rules},
};

/// Limits that nothing reaches, and a window that does not end.
const RULES: &str =
    "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: year, requests_per_unit: 4000000000}\n";

/// The server, and who asks it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) tollgate: Tollgate,
    pub(super) load: Load,
    _config: TempDir,
}

/// When a fault was there, by the load's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) fault: Duration,
    pub(super) healed: Duration,
}

/// Counters that are asked for in turn.
pub(super) fn names() -> Vec<String> {
    (0..64).map(|number| format!("n{number}")).collect()
}

impl World {
    /// Serves rules that deny nothing, and asks for one counter of each name in turn.
    pub(super) fn start(store: &str, form: &Form, names: &[String]) -> Self {
        Self::with_rules(RULES, store, form, names)
    }

    pub(super) fn with_rules(yaml: &str, store: &str, form: &Form, names: &[String]) -> Self {
        let config = rules(yaml);
        let arguments = [
            "--store",
            store,
            "--store-timeout",
            form.store_timeout,
            "--log-level",
            "error",
            "--on-store-error",
            "local",
        ];
        let tollgate = Tollgate::start(config.path(), &arguments);
        let bodies = for_names(names);
        let plan = Plan { rate: form.rate, connections: 4, deadline: form.deadline, bodies };
        let load = Load::start(tollgate.grpc_port, plan);
        Self { tollgate, load, _config: config }
    }

    /// Lets a fault be there for its time.
    pub(super) fn during(&self, form: &Form, begin: impl FnOnce(), end: impl FnOnce()) -> Times {
        self.calm(form, form.before);
        let fault = self.load.now();
        begin();
        thread::sleep(form.fault);
        end();
        self.healed(form, fault)
    }

    /// Lets things calm down after a fault that was healed now.
    pub(super) fn healed(&self, form: &Form, fault: Duration) -> Times {
        let healed = self.load.now();
        self.calm(form, form.after);
        Times { fault, healed }
    }

    /// Lets time pass: by the clock, or on a busy machine, until nothing has happened for so long.
    pub(super) fn calm(&self, form: &Form, time: Duration) {
        match form.is_timed() {
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
