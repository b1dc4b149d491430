//! The task of an instance: reports each minute, and evaluates the fleet's if it holds the lease.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{task::spawn_blocking, time::sleep};
use tollgate_anomaly::{Sensitivity, Traffic};
use tollgate_control::{Control, ControlError, SeriesCounts};
use tollgate_core::clock::Clock;
use tollgate_limiter::{ActiveRules, metrics::rule_totals};
use tollgate_runtime::outage::OutageLog;

use super::{
    evaluator::{Evaluator, traffic_of},
    metrics,
    names::name_of,
    tally::Tally,
    view::{AnomalyStatus, AnomalyView},
};

/// Name of the lease.
const LEASE: &str = "anomalies";
/// Lifetime of the lease: two minutes may be missed.
const LEASE_LIFETIME: Duration = Duration::from_secs(150);

/// Maximum delay of a report, so that instances do not report at once.
const MAX_SPREAD_MS: u64 = 5_000;
/// Time after the end of a minute until it is evaluated.
const EVALUATION_DELAY: Duration = Duration::from_secs(20);
/// Minutes that are evaluated at once, when this instance has taken over.
const MAX_MINUTES: u64 = 8;

const MINUTE_MICROS: u64 = 60_000_000;

/// State of the task.
#[derive(Debug)]
pub(super) struct AnomalyTask {
    sensitivity: Sensitivity,
    control: Control,
    rules: Arc<ActiveRules>,
    status: AnomalyStatus,
    tally: Tally,
    /// Present while this instance holds the lease.
    evaluator: Option<Evaluator>,
    /// When the lease was last confirmed.
    held_at: Option<Instant>,
    outage: OutageLog,
}

impl AnomalyTask {
    pub(super) fn new(
        sensitivity: Sensitivity,
        control: Control,
        rules: Arc<ActiveRules>,
        status: AnomalyStatus,
    ) -> Self {
        Self {
            sensitivity,
            control,
            rules,
            status,
            tally: Tally::default(),
            evaluator: None,
            held_at: None,
            outage: OutageLog::default(),
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let now = Clock::System.now().as_micros();
            let minute = now / MINUTE_MICROS;
            let left = MINUTE_MICROS.saturating_sub(now % MINUTE_MICROS);
            sleep(Duration::from_micros(left)).await;
            let traffic = self.take(minute).await;
            let result = self.handle(minute, traffic).await;
            self.drop_lapsed();
            self.note(result.err().as_ref());
        }
    }

    /// The traffic of this instance in the minute that ended.
    async fn take(&mut self, minute: u64) -> Option<Traffic> {
        // Reads thousands of series.
        let totals = spawn_blocking(rule_totals).await.ok()?;
        self.tally.take(minute, Instant::now(), &totals)
    }

    async fn handle(&mut self, minute: u64, traffic: Option<Traffic>) -> Result<(), ControlError> {
        if !self.control.is_shared() {
            if self.evaluator.is_none() {
                self.evaluator = Some(Evaluator::load(&self.control, self.sensitivity).await?);
            }
            self.evaluate(minute, traffic.as_ref());
            return Ok(());
        }
        sleep(Duration::from_millis(fastrand::u64(..MAX_SPREAD_MS))).await;
        let reported = match traffic {
            Some(traffic) => self.report(minute, &traffic).await,
            None => Ok(()),
        };
        sleep(EVALUATION_DELAY).await;
        reported?;
        if !self.control.hold_lease(LEASE, LEASE_LIFETIME).await? {
            self.give_up();
            return Ok(());
        }
        self.drop_lapsed();
        self.held_at = Some(Instant::now());
        self.catch_up(minute).await
    }

    async fn report(&self, minute: u64, traffic: &Traffic) -> Result<(), ControlError> {
        let counts = traffic.0.iter().map(|(key, counts)| SeriesCounts {
            name: name_of(key),
            hits: counts.hits,
            denied: counts.denied,
        });
        match self.control.add_minute(minute, counts.collect()).await? {
            true => Ok(()),
            false => Err(ControlError::Malformed(
                "the clock differs from the server's by minutes; expected synchronized clocks".to_owned(),
            )),
        }
    }

    /// Evaluates all minutes since the last one.
    async fn catch_up(&mut self, minute: u64) -> Result<(), ControlError> {
        if self.evaluator.is_none() {
            self.evaluator = Some(Evaluator::load(&self.control, self.sensitivity).await?);
        }
        let first = self.evaluator.as_ref().map_or(minute, |evaluator| evaluator.next(minute, MAX_MINUTES));
        for minute in first..=minute {
            let traffic = traffic_of(self.control.minute(minute).await?);
            self.evaluate(minute, traffic.as_ref());
        }
        match &mut self.evaluator {
            Some(evaluator) => evaluator.store(&self.control).await,
            None => Ok(()),
        }
    }

    fn evaluate(&mut self, minute: u64, traffic: Option<&Traffic>) {
        let Some(evaluator) = &mut self.evaluator else { return };
        for event in evaluator.evaluate(minute, traffic, &self.rules) {
            self.control.raise_event(event);
        }
        self.status.set(evaluator.view().clone());
    }

    /// Gives up what was learned under a lease that has ended since: another instance may have continued.
    fn drop_lapsed(&mut self) {
        if self.held_at.is_some_and(|at| at.elapsed() > LEASE_LIFETIME) {
            self.give_up();
        }
    }

    /// Leaves the evaluation to another instance.
    fn give_up(&mut self) {
        self.held_at = None;
        if self.evaluator.take().is_some() {
            metrics::none();
            self.status.set(AnomalyView::default());
        }
    }

    fn note(&mut self, error: Option<&ControlError>) {
        match error {
            Some(error) if self.outage.failed() => {
                tracing::warn!(%error, "control store unreachable; traffic minutes are missing");
            }
            None if self.outage.recovered() => tracing::info!("traffic minutes are complete again"),
            _ => {}
        }
    }
}
