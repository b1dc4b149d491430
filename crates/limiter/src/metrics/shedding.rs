//! Metrics of the rules that shed by utilization.

use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_metrics::{Computed, Declared, Page};
use tollgate_shedding::{Priority, SheddingGate};

/// A rule that sheds, as metrics and operators see it.
#[derive(Clone, Debug)]
pub struct ShownRule {
    /// Its domain.
    pub domain: Box<str>,
    /// Its path.
    pub path: Box<str>,
    /// Its state.
    pub gate: Arc<SheddingGate>,
}

/// The active rules that shed; the number of such rules is bounded.
static SHOWN: Mutex<Vec<ShownRule>> = Mutex::new(Vec::new());

pub(super) static SHEDDING: Computed<4> = Computed::group(
    [
        Declared::counter(
            "tollgate_rule_shed_hits_total",
            &["domain", "rule", "priority"],
            "Hits shed because of a high utilization; in shadow mode, hits that would be shed.",
        ),
        Declared::gauge(
            "tollgate_rule_utilization_ratio",
            &["domain", "rule"],
            "Smoothed utilization that the service of a rule reports, 0 to 1.",
        ),
        Declared::gauge(
            "tollgate_rule_pass_ratio",
            &["domain", "rule", "priority"],
            "Probability with which a rule that sheds lets a request pass, 0 to 1.",
        ),
        Declared::gauge(
            "tollgate_rule_report_age_seconds",
            &["domain", "rule"],
            "Time since the last report of utilization.",
        ),
    ],
    |declared, page| write(declared, page, &SHOWN.lock()),
);

fn write([shed, utilization, pass, age]: &[Declared; 4], page: &mut Page, shown: &[ShownRule]) {
    page.begin(shed);
    for ShownRule { domain, path, gate } in shown {
        for (priority, hits) in Priority::ALL.into_iter().zip(gate.counts().shed) {
            page.sample(shed, &[domain, path, priority.name()], hits);
        }
    }
    page.begin(utilization);
    for ShownRule { domain, path, gate } in shown {
        gate.state().utilization.iter().for_each(|known| page.sample(utilization, &[domain, path], known));
    }
    page.begin(pass);
    for ShownRule { domain, path, gate } in shown {
        for priority in Priority::ALL {
            page.sample(pass, &[domain, path, priority.name()], gate.rates().of_priority(priority));
        }
    }
    page.begin(age);
    for ShownRule { domain, path, gate } in shown {
        let known = gate.state().report_age;
        known.iter().for_each(|known| page.sample(age, &[domain, path], known.as_secs_f64()));
    }
}

/// Shows these rules from now on.
pub fn show_shedding(rules: Vec<ShownRule>) {
    *SHOWN.lock() = rules;
}

/// The rules that are shown.
pub fn shown_shedding() -> Vec<ShownRule> {
    SHOWN.lock().clone()
}
