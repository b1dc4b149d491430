//! Exports the rates of the heaviest keys of all instances, from one of them.

use std::{convert::Infallible, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tollgate_control::{Control, ControlError};
use tollgate_limiter::talkers::{RECENT_SECONDS, Span, Talker};
use tollgate_runtime::backoff::Backoff;

use super::{
    metrics::{self, DomainRates},
    reachable,
    view::{FleetReports, FleetView},
};

/// Name of the lease of the instance that exports.
const LEASE: &str = "fleet";

/// Time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two attempts while the store does not respond.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Lifetime of the lease: several rounds.
const LEASE_LIFETIME: Duration = Duration::from_secs(10);

/// Exports while this instance holds the lease; never returns.
pub(super) async fn run(control: Control, view: FleetView) -> Infallible {
    let mut backoff = Backoff::new(ROUND_INTERVAL, MAX_PAUSE);
    loop {
        if !control.is_reachable() {
            metrics::clear_rates();
            reachable(&control).await;
        }
        // An error is counted, and the reconciler logs that the store does not respond.
        if round(&control, &view).await.is_ok() {
            backoff.reset();
            sleep(ROUND_INTERVAL).await;
        } else {
            metrics::clear_rates();
            sleep(backoff.pause()).await;
        }
    }
}

async fn round(control: &Control, view: &FleetView) -> Result<(), ControlError> {
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
    let domains = reports.merged(Span::Recent).into_iter();
    let rates = domains.map(|(domain, counts)| DomainRates {
        domain: domain.to_owned(),
        heaviest: rate(&counts.heaviest.top(usize::MAX)),
        denied: rate(&counts.denied.top(usize::MAX)),
    });
    metrics::set_rates(rates.collect(), reports);
}

/// The rate that is certain: hits that may belong to other keys are left out.
const fn certain_rate(talker: &Talker) -> u64 {
    talker.hits.saturating_sub(talker.error).saturating_div(RECENT_SECONDS)
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
