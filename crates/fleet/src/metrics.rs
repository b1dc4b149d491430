//! Metrics of the fleet.

use parking_lot::Mutex;
use tollgate_limiter::talkers;
use tollgate_metrics::{Computed, CounterFamily, Declared, Metric};

use super::report::{FleetReports, ReportStatus};

/// Metrics of the fleet.
pub static METRICS: &[&dyn Metric] = &[&RATES, &DELIVERIES];

/// Maximum number of domains with rates; those with the lightest keys are left out.
const MAX_DOMAINS: usize = 100;

static RATES: Computed<3> = Computed::group(
    [
        Declared::gauge(
            "tollgate_heaviest_key_hits_per_second",
            &["domain"],
            "Hits per second of the domain's key that has most, in all instances; from one instance of the fleet.",
        ),
        Declared::gauge(
            "tollgate_most_denied_key_hits_per_second",
            &["domain"],
            "Denied hits per second of the domain's key that has most, in all instances; from one instance.",
        ),
        Declared::gauge(
            "tollgate_fleet_instances",
            &["report"],
            "Instances by whether their report is included in sums over all; from one instance of the fleet.",
        ),
    ],
    |[heaviest, denied, instances], page| {
        let Some(FleetRates { mut domains, statuses }) = LATEST.lock().clone() else { return };
        // A domain is exported from its first request on.
        for active in talkers::active_domains() {
            if domains.len() < MAX_DOMAINS && domains.iter().all(|rates| rates.domain != active) {
                domains.push(DomainRates { domain: active, heaviest: 0, denied: 0 });
            }
        }
        domains.truncate(MAX_DOMAINS);
        domains.sort_by(|a, b| a.domain.cmp(&b.domain));
        page.begin(heaviest);
        domains.iter().for_each(|rates| page.sample(heaviest, &[&rates.domain], rates.heaviest));
        page.begin(denied);
        domains.iter().for_each(|rates| page.sample(denied, &[&rates.domain], rates.denied));
        page.begin(instances);
        for (status, count) in statuses {
            page.sample(instances, &[status], count);
        }
    },
);

pub(super) static DELIVERIES: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_webhook_attempts_total",
    &["result"],
    "Attempts of this instance to deliver an event to the webhook.",
    &[["delivered"], ["failed"], ["refused"], ["expired"]],
);

/// Rates of the heaviest and the most denied key of a domain, in hits per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DomainRates {
    pub(super) domain: String,
    pub(super) heaviest: u64,
    pub(super) denied: u64,
}

/// Rates and instances of the last round.
#[derive(Clone, Debug)]
struct FleetRates {
    /// Domains with the heaviest keys first.
    domains: Vec<DomainRates>,
    statuses: [(&'static str, usize); 4],
}

/// The last round, if this instance evaluates.
static LATEST: Mutex<Option<FleetRates>> = Mutex::new(None);

/// Records the rates of a round.
pub(super) fn set_rates(mut domains: Vec<DomainRates>, reports: &FleetReports) {
    domains.sort_by_key(|rates| std::cmp::Reverse(rates.heaviest));
    domains.truncate(MAX_DOMAINS);
    let statuses = ReportStatus::ALL.map(|status| (status.name(), reports.count(status)));
    *LATEST.lock() = Some(FleetRates { domains, statuses });
}

/// Exports no rates any more: another instance evaluates.
pub(super) fn clear_rates() {
    *LATEST.lock() = None;
}
