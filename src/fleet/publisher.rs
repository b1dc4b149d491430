//! Publishes the report and the totals of this instance.

use std::{convert::Infallible, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tollgate_control::{Control, ControlError, ReportTopic};
use tollgate_runtime::backoff::Backoff;

use super::{
    history::{self, Intervals, MAX_SAMPLES},
    reachable,
    report::Report,
    view::FleetView,
};

/// Time between two reports.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two attempts while the store does not respond.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Lifetime of the totals of an interval: a minute longer than they are shown.
const TOTALS_LIFETIME: Duration =
    Duration::from_secs((MAX_SAMPLES as u64).saturating_mul(history::INTERVAL_S).saturating_add(60));

/// Task that publishes to the control store.
#[derive(Debug)]
pub(super) struct Publisher {
    control: Control,
    view: FleetView,
    is_sampling: bool,
    intervals: Intervals,
}

impl Publisher {
    pub(super) fn new(control: Control, view: FleetView, is_sampling: bool) -> Self {
        Self { control, view, is_sampling, intervals: Intervals::default() }
    }

    /// Publishes every [`REPORT_INTERVAL`]; never returns.
    pub(super) async fn run(mut self) -> Infallible {
        let mut backoff = Backoff::new(REPORT_INTERVAL, MAX_PAUSE);
        loop {
            reachable(&self.control).await;
            // An error is counted, and the reconciler logs that the store does not respond.
            match self.publish().await {
                Ok(()) => {
                    backoff.reset();
                    sleep(REPORT_INTERVAL).await;
                }
                Err(_) => sleep(backoff.pause()).await,
            }
        }
    }

    async fn publish(&mut self) -> Result<(), ControlError> {
        let is_sampling = self.is_sampling;
        let text = spawn_blocking(move || Report::of_this_instance(is_sampling).into_text()).await;
        let text = text.map_err(|error| ControlError::Unavailable(error.to_string()))?;
        let Some(server_ms) = self.control.store_report(ReportTopic::Traffic, text).await? else {
            return Ok(());
        };
        self.view.set_store_time(server_ms);
        for interval in history::take_unpublished() {
            let number = self.intervals.next(self.view.store_time(interval.at_ms));
            self.control.add_totals(number, &interval.totals, TOTALS_LIFETIME).await?;
        }
        Ok(())
    }
}
