//! Traffic of all instances: top talkers, history, and the events that operators are notified of.
//!
//! ```text
//! talkers, history ──> reports ──> control store ──> view ──> API, dashboard
//!                                                     └──> rates (one instance) ──> gauges
//! events ──> log in the control store ──> webhook (one instance)
//! ```
//!
//! - Every instance stores a report every two seconds, and adds to the totals of each interval of the `history`.
//! - `view` reads the reports and totals of all instances.
//! - One instance exports the rates of the heaviest keys.
//! - `webhook` delivers each event once, from one instance of the fleet.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

pub mod history;
pub mod metrics;
pub mod rollouts;
mod view;
mod webhook;

use std::{convert::Infallible, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::task::AbortOnDropHandle;
use tollgate_control::{Control, ControlError, ReportTopic, log_events};
use tollgate_limiter::talkers::{RECENT_SECONDS, Talker};
use tollgate_runtime::backoff::Backoff;

use self::history::{Intervals, MAX_SAMPLES};
use self::{metrics::DomainRates, view::Report, webhook::Delivery};

pub use self::view::{Cached, FleetReports, FleetView, InstanceStatus, MAX_REPORT_AGE_MS, ReportStatus};
pub use self::webhook::{WebhookSettings, WebhookUrl};

/// Time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two attempts while the store does not respond.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Name of the lease of the instance that exports rates.
const LEASE: &str = "fleet";

/// Lifetime of a lease that is renewed in each round: several rounds.
pub const LEASE_LIFETIME: Duration = Duration::from_secs(10);

/// Lifetime of the totals of an interval: a minute longer than they are shown.
const TOTALS_LIFETIME: Duration = Duration::from_secs(MAX_SAMPLES as u64 * history::INTERVAL_S + 60);

/// Time between two checks whether the control store responds.
const REACHABLE_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the tasks of the fleet on the current runtime; each ends when its handle is dropped.
pub fn start(
    webhook: Option<WebhookSettings>,
    control: &Control,
    view: &FleetView,
) -> Vec<AbortOnDropHandle<Infallible>> {
    let mut tasks =
        vec![spawn(log_events(control.clone())), spawn(export_rates(control.clone(), view.clone()))];
    if control.is_shared() {
        tasks.push(spawn(publish(control.clone(), view.clone())));
    }
    if let Some(webhook) = webhook {
        tasks.push(spawn(Delivery::new(control.clone(), webhook).run()));
    }
    tasks
}

fn spawn(task: impl Future<Output = Infallible> + Send + 'static) -> AbortOnDropHandle<Infallible> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Waits until the control store responds and permits its use, as the heartbeat finds out.
async fn reachable(control: &Control) {
    while !control.is_reachable() {
        sleep(REACHABLE_INTERVAL).await;
    }
}

/// Pace of a task that uses the control store in rounds.
#[derive(Debug)]
pub(crate) struct Pace(Backoff);

impl Pace {
    pub(crate) const fn new() -> Self {
        Self(Backoff::new(ROUND_INTERVAL, MAX_PAUSE))
    }

    /// Waits for the next round: after an error, ever longer. The error is counted, and the reconciler logs that the store
    /// does not respond.
    pub(crate) async fn wait_after(&mut self, round: Result<(), ControlError>) {
        if round.is_ok() {
            self.0.reset();
            sleep(ROUND_INTERVAL).await;
        } else {
            sleep(self.0.pause()).await;
        }
    }
}

/// Publishes the report and the totals of this instance; never returns.
async fn publish(control: Control, view: FleetView) -> Infallible {
    let (mut pace, mut intervals) = (Pace::new(), Intervals::default());
    loop {
        reachable(&control).await;
        let published = publish_once(&control, &view, &mut intervals).await;
        pace.wait_after(published).await;
    }
}

async fn publish_once(
    control: &Control,
    view: &FleetView,
    intervals: &mut Intervals,
) -> Result<(), ControlError> {
    let text = view.own_report(Report::into_text).await?;
    let Some(server_ms) = control.store_report(ReportTopic::Traffic, text).await? else { return Ok(()) };
    view.set_store_time(server_ms);
    for interval in history::take_unpublished() {
        let number = intervals.next(view.store_time(interval.at_ms));
        control.add_totals(number, &interval.totals, TOTALS_LIFETIME).await?;
    }
    Ok(())
}

/// Exports the rates of the heaviest keys of all instances while this instance holds the lease; never returns.
async fn export_rates(control: Control, view: FleetView) -> Infallible {
    let mut pace = Pace::new();
    loop {
        if !control.is_reachable() {
            metrics::clear_rates();
            reachable(&control).await;
        }
        let exported = export_once(&control, &view).await;
        if exported.is_err() {
            metrics::clear_rates();
        }
        pace.wait_after(exported).await;
    }
}

async fn export_once(control: &Control, view: &FleetView) -> Result<(), ControlError> {
    if !control.hold_lease(LEASE, LEASE_LIFETIME).await? {
        metrics::clear_rates();
        return Ok(());
    }
    let reports = view.reports().await?;
    // Sums over many instances take some milliseconds. The only error is a panic, which is logged.
    let _ = spawn_blocking(move || record(&reports)).await;
    Ok(())
}

/// Records the rates of the heaviest keys.
fn record(reports: &FleetReports) {
    let rate = |talkers: &[Talker]| talkers.iter().map(certain_rate).max().unwrap_or_default();
    let domains = reports.merged(|counts| &counts.recent).into_iter();
    let rates = domains.map(|(domain, counts)| DomainRates {
        domain: domain.to_owned(),
        heaviest: rate(&counts.heaviest.top(usize::MAX)),
        denied: rate(&counts.denied.top(usize::MAX)),
    });
    metrics::set_rates(rates.collect(), reports);
}

/// The rate that is certain: hits that may belong to other keys are left out.
const fn certain_rate(talker: &Talker) -> u64 {
    talker.hits.saturating_sub(talker.error) / RECENT_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_may_belong_to_other_keys_are_left_out() {
        let talker = |error| Talker { key: "k=a".to_owned(), descriptor: None, hits: 14_000, error };
        assert_eq!([0, 4_000, 4_001].map(|error| certain_rate(&talker(error))), [1_400, 1_000, 999]);
    }
}
