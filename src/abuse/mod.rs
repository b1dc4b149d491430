//! Adaptive deny list: reports what this instance observes, and on the instance that leads, lists the keys that abuse
//! their limits.
//!
//! ```text
//! workers ──> collector ──> report ──> control store ──> leader: detector ──> automatic entries ──> all instances
//! ```
//!
//! Nothing runs while no domain has an abuse rule. While the control store does not respond, nothing is listed.

mod listing;
pub mod metrics;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};
use tollgate_control::{Control, Exchange};
use tollgate_core::clock::Clock;
use tollgate_limiter::{
    ActiveRules,
    abuse::{AbuseCollector, AbuseDetector, AbuseReport, Detected, InstanceReport},
};
use tollgate_rules::Rules;
use tollgate_runtime::outage::OutageLog;

/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two rounds without which rates are not continuous.
const MAX_GAP_MS: u64 = 6_000;

/// Task that detects and lists abuse.
struct AbuseTask {
    control: Control,
    rules: Arc<ActiveRules>,
    collector: AbuseCollector,
    detector: AbuseDetector,
    /// Reports so far.
    sequence: u64,
    /// Number of instances, as of the last exchange.
    instances: u32,
    /// Keys that all instances are to watch, if this instance led in the last round.
    watched: Option<Vec<u8>>,
    log: OutageLog,
    started: Instant,
}

/// Detects abuse in what `collector` observes, and lists it. Never returns.
pub(crate) async fn run(control: Control, rules: Arc<ActiveRules>, collector: AbuseCollector) -> Infallible {
    let task = AbuseTask {
        control,
        rules,
        collector,
        detector: AbuseDetector::default(),
        sequence: 0,
        instances: 1,
        watched: None,
        log: OutageLog::default(),
        started: Instant::now(),
    };
    task.run().await
}

impl AbuseTask {
    async fn run(mut self) -> Infallible {
        // Exported from the start, so that a first one is seen as a change.
        metrics::keys_dropped(0);
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = Instant::now();
        loop {
            ticks.tick().await;
            let passed = before.elapsed();
            before = Instant::now();
            let rules =
                self.rules.load().filter(|rules| rules.domains().any(|domain| !domain.abuse.is_empty()));
            match rules {
                Some(rules) => self.round(rules, millis(passed)).await,
                None => self.watched = None,
            }
        }
    }

    async fn round(&mut self, rules: Arc<Rules>, interval_ms: u64) {
        self.sequence = self.sequence.saturating_add(1);
        let (report, dropped) = self.collector.report(&rules, self.sequence, interval_ms, self.instances);
        metrics::keys_dropped(dropped);
        let Ok(report) = serde_json::to_vec(&report) else { return };
        let exchanged = match self.control.exchange_abuse(report, self.watched.take()).await {
            Ok(exchanged) => exchanged,
            Err(error) => {
                if self.log.failed() {
                    tracing::warn!(%error, "abuse detection paused: control store unreachable");
                }
                return;
            }
        };
        if self.log.recovered() {
            tracing::info!("abuse detection resumed: control store recovered");
        }
        let Exchange { instances, watch, reports } = exchanged;
        self.instances = instances;
        let watch: Vec<(String, String)> = serde_json::from_slice(&watch).unwrap_or_default();
        self.collector.watch(watch.iter().map(|(domain, key)| (&**domain, &**key)));
        if let Some(reports) = reports {
            let detected = self.evaluate(reports, rules).await;
            self.watched = serde_json::to_vec(&detected.watched).ok();
            listing::list(&self.control, detected).await;
        }
    }

    /// Evaluates the reports of all instances; takes some milliseconds for thousands of keys.
    async fn evaluate(&mut self, reports: Vec<(String, Vec<u8>)>, rules: Arc<Rules>) -> Detected {
        let (mut detector, active) = (std::mem::take(&mut self.detector), Arc::clone(&self.rules));
        let now_ms = millis(self.started.elapsed());
        let evaluated = spawn_blocking(move || {
            let read = |(instance, report): (String, Vec<u8>)| {
                // That of another release may differ.
                let report: AbuseReport = serde_json::from_slice(&report).ok()?;
                Some(InstanceReport { instance, report })
            };
            let reports: Vec<_> = reports.into_iter().filter_map(read).collect();
            let wall_ms = Clock::System.now().as_micros() / 1_000;
            let lists = active.lists();
            let detected = detector.evaluate(now_ms, wall_ms, MAX_GAP_MS, &reports, (&rules, &lists));
            (detector, detected)
        });
        // Fails only by a panic, which is logged; then detection begins anew.
        let (detector, detected) = evaluated.await.unwrap_or_default();
        self.detector = detector;
        detected
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
