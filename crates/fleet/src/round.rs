//! Rounds of an instance: it reports, and if it leads, it reads the reports of all instances and acts on them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tollgate_control::{Control, ControlError, FleetRound};
use tollgate_limiter::talkers::{RECENT_SECONDS, Talker};
use tollgate_runtime::backoff::Backoff;

use super::history::{self, Intervals, MAX_SAMPLES};
use super::metrics::{self, DomainRates};
use super::report::{FleetReports, Report};
use super::{FleetView, reachable, rollouts::RampKeeper};

/// Time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two attempts while the store does not respond.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Lifetime of the lease, which each round renews: several rounds, and longer than an attempt of the webhook.
const LEASE_LIFETIME: Duration = Duration::from_secs(15);

/// Lifetime of the totals of an interval: a minute longer than they are shown.
const TOTALS_LIFETIME: Duration = Duration::from_secs(MAX_SAMPLES as u64 * history::INTERVAL_S + 60);

/// Lease of this instance; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease(Arc<Mutex<Option<Instant>>>);

impl Lease {
    /// Time for which this instance holds the lease at least; `None` if the store replied that it does not.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.0.lock().map(|end| end.saturating_duration_since(Instant::now()))
    }

    fn set(&self, is_held: bool, since: Instant) {
        *self.0.lock() = since.checked_add(LEASE_LIFETIME).filter(|_| is_held);
    }
}

/// Task of the rounds.
#[derive(Debug)]
pub(super) struct Rounds {
    control: Control,
    view: FleetView,
    lease: Lease,
    intervals: Intervals,
    ramps: RampKeeper,
    /// Whether the store responded to the last round: then its clock is known, and totals can be added.
    was_answered: bool,
}

impl Rounds {
    pub(super) fn new(control: Control, view: FleetView) -> Self {
        let (lease, intervals, ramps) = Default::default();
        Self { control, view, lease, intervals, ramps, was_answered: false }
    }

    pub(super) const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Makes rounds; never returns. An error is counted, and the reconciler logs that the store does not respond.
    pub(super) async fn run(mut self) -> Infallible {
        let mut backoff = Backoff::new(ROUND_INTERVAL, MAX_PAUSE);
        loop {
            if !self.control.is_reachable() {
                self.resign();
                reachable(&self.control).await;
            }
            let pause = if self.round().await.is_ok() {
                backoff.reset();
                ROUND_INTERVAL
            } else {
                self.resign();
                backoff.pause()
            };
            sleep(pause).await;
        }
    }

    async fn round(&mut self) -> Result<(), ControlError> {
        if !self.report().await? {
            self.resign();
            return Ok(());
        }
        let reports = self.view.reports().await?;
        let read = Arc::clone(&reports);
        // Sums over many instances take some milliseconds. The only error is a panic, which is logged.
        let _ = spawn_blocking(move || record(&read)).await;
        self.ramps.round(&self.control, self.view.rules(), reports.rollouts()).await
    }

    /// Reports to the other instances; whether this one leads.
    async fn report(&mut self) -> Result<bool, ControlError> {
        // Without others nothing reads the report.
        let is_shared = self.control.is_shared();
        let report = if is_shared { self.view.own_report(Report::into_text).await? } else { String::new() };
        // After an error they wait, so that an outage loses those of one attempt.
        let taken =
            if std::mem::take(&mut self.was_answered) { history::take_unpublished() } else { [].into() };
        let number = |interval: history::IntervalTotals| {
            (self.intervals.next(self.view.store_time(interval.at_ms)), interval.totals)
        };
        let totals: Vec<_> = taken.into_iter().map(number).collect();
        let (lease_lifetime, totals_lifetime, since) = (LEASE_LIFETIME, TOTALS_LIFETIME, Instant::now());
        let round = FleetRound { report, totals: &totals, totals_lifetime, lease_lifetime };
        let reply = self.control.fleet_round(round).await?;
        self.was_answered = true;
        self.view.set_store_time(reply.store_ms);
        self.lease.set(reply.is_leader, since);
        Ok(reply.is_leader)
    }

    /// Leaves the rates and the ramps to another instance.
    fn resign(&mut self) {
        metrics::clear_rates();
        self.ramps.resign();
    }
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
