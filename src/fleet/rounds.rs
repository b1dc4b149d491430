//! Evaluates the traffic of all instances, in one of them.

use std::{convert::Infallible, mem, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tollgate_control::{Control, ControlError, OperatorEvent};
use tollgate_core::clock::Clock;
use tollgate_limiter::talkers::{Span, Talker};
use tollgate_runtime::backoff::Backoff;

use super::{
    metrics::{self, DomainRates},
    reachable,
    view::{FleetReports, FleetView},
    watch::{KeyRateWatch, certain_rate},
};

/// Name of the lease of the instance that evaluates.
const LEASE: &str = "fleet";

/// Time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two attempts while the store does not respond.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Lifetime of the lease: several rounds.
const LEASE_LIFETIME: Duration = Duration::from_secs(10);

/// Events of the log from which an instance continues.
const RESUMED_EVENTS: usize = 1_000;

/// Task that evaluates while it holds the lease.
#[derive(Debug)]
pub(super) struct Rounds {
    control: Control,
    view: FleetView,
    threshold: u64,
    watch: KeyRateWatch,
    /// Whether the last round held the lease.
    is_holder: bool,
}

impl Rounds {
    pub(super) const fn new(control: Control, view: FleetView, threshold: u64) -> Self {
        Self { control, view, threshold, watch: KeyRateWatch::new(threshold), is_holder: false }
    }

    /// Evaluates; never returns.
    pub(super) async fn run(mut self) -> Infallible {
        let mut backoff = Backoff::new(ROUND_INTERVAL, MAX_PAUSE);
        loop {
            if !self.control.is_reachable() {
                self.is_holder = false;
                metrics::clear_rates();
                reachable(&self.control).await;
            }
            // An error is counted, and the reconciler logs that the store does not respond.
            if self.round().await.is_ok() {
                backoff.reset();
                sleep(ROUND_INTERVAL).await;
            } else {
                self.is_holder = false;
                metrics::clear_rates();
                sleep(backoff.pause()).await;
            }
        }
    }

    async fn round(&mut self) -> Result<(), ControlError> {
        if !self.control.hold_lease(LEASE, LEASE_LIFETIME).await? {
            self.is_holder = false;
            metrics::clear_rates();
            return Ok(());
        }
        if !self.is_holder {
            let events = self.control.events(None, RESUMED_EVENTS).await?;
            self.watch.resume(&events, Clock::System.now().as_micros() / 1_000);
            self.is_holder = true;
        }
        let reports = self.view.reports().await?;
        // Sums over many instances take some milliseconds.
        let mut watch = mem::replace(&mut self.watch, KeyRateWatch::new(0));
        let evaluated = spawn_blocking(move || {
            let events = evaluate(&reports, &mut watch);
            (watch, events)
        });
        // The only error is a panic, which is logged.
        let empty = || (KeyRateWatch::new(self.threshold), Vec::new());
        let (watch, events) = evaluated.await.unwrap_or_else(|_| empty());
        self.watch = watch;
        events.into_iter().for_each(|event| self.control.raise_event(event));
        Ok(())
    }
}

/// Records the rates of the heaviest keys, and returns the events of a round.
fn evaluate(reports: &FleetReports, watch: &mut KeyRateWatch) -> Vec<OperatorEvent> {
    let domains = reports.merged(Span::Recent);
    let rate = |talkers: &[Talker]| talkers.iter().map(certain_rate).max().unwrap_or_default();
    let rates = domains.iter().map(|(domain, counts)| DomainRates {
        domain: (*domain).to_owned(),
        heaviest: rate(&counts.heaviest.top(usize::MAX)),
        denied: rate(&counts.denied.top(usize::MAX)),
    });
    metrics::set_rates(rates.collect(), reports);
    watch.round(&domains, Clock::System.now().as_micros() / 1_000)
}
