//! Reconciles the active rules and records with the control store.
//!
//! ```text
//! every second, or at once when notified ──> heartbeat: reports this instance, returns the head of the store
//!                                              ├─ another version ──> rules: fetch, load, activate
//!                                              └─ another revision ──> books: fetch changes, activate
//! ```
//!
//! Neither waits for the other. A failed step is retried after a later heartbeat; until then the former state stays
//! active, and records end on time. However much is changed, heartbeats are at least 100 ms apart, or 20 ms for changes by
//! this instance.
//!
//! A notification reaches all instances at once. Each waits for a random time, so that hundreds of them do not keep Redis
//! from decisions.

mod book;
mod outage;
mod rules;

use std::{convert::Infallible, future::pending, ops::RangeInclusive, sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio::{select, sync::oneshot};
use tokio_util::task::AbortOnDropHandle;
use tollgate_core::clock::now_ms;
use tollgate_rules::OverrideTarget;
use tollgate_runtime::task_slot::TaskSlot;

use self::book::BookReconciler;
use self::outage::{AclDenial, StoreOutage};
use self::rules::{LoadResult, RulesReconciler};
use crate::stored::StoreHead;
use crate::{Control, ControlResult, Instance, RulesSource, RulesStatus, metrics};

pub use self::rules::Rules;

/// Time between two heartbeats without notifications.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a notification, in which further ones are collected.
const NOTIFICATION_DELAY: Duration = Duration::from_millis(5);
/// Longest further delay after a notification, in milliseconds.
const MAX_NOTIFICATION_SPREAD_MS: u64 = 200;
/// Shortest time between two heartbeats.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time before a heartbeat after a change by this instance, whose caller waits for it.
const OWN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(20);

/// Reconciles this instance with the store until dropped.
#[derive(Debug)]
pub struct Reconciler {
    _task: AbortOnDropHandle<Infallible>,
    /// Completes after the first attempt, successful or not.
    first_attempt: oneshot::Receiver<()>,
}

struct ReconcileTask {
    control: Control,
    status: RulesStatus,
    started_at_ms: u64,
    active_domains: ActiveDomains,
    in_flight: TaskSlot<ControlResult<StoreHead>>,
    /// Time of the next heartbeat, after the one in flight, besides the regular ones.
    due: Option<Instant>,
    /// When the last heartbeat began.
    heartbeat_at: Option<Instant>,
    /// Present if rules come from this store.
    rules: Option<RulesReconciler>,
    book: BookReconciler,
    outage: StoreOutage,
    acl_denial: AclDenial,
    /// Subscription to changes, once the store has responded.
    subscriber: Option<AbortOnDropHandle<Infallible>>,
    first_attempt: Option<oneshot::Sender<()>>,
}

impl Reconciler {
    /// Starts on the current runtime. Without `rules`, only records are reconciled, and rules have another
    /// source.
    pub fn start(
        control: &Control,
        status: RulesStatus,
        snapshot: Arc<dyn OverrideTarget>,
        rules: Option<Rules>,
        active_domains: ActiveDomains,
    ) -> Self {
        let (sender, first_attempt) = oneshot::channel();
        let task = ReconcileTask {
            started_at_ms: now_ms(),
            active_domains,
            in_flight: TaskSlot::default(),
            due: None,
            heartbeat_at: None,
            rules: rules.map(|rules| RulesReconciler::new(control.clone(), rules)),
            book: BookReconciler::new(control.clone(), status.clone(), snapshot),
            outage: StoreOutage::default(),
            acl_denial: AclDenial::default(),
            subscriber: None,
            first_attempt: Some(sender),
            control: control.clone(),
            status,
        };
        Self { _task: AbortOnDropHandle::new(tokio::spawn(task.run())), first_attempt }
    }

    /// Waits until the initial state of the store is active, or the attempt failed.
    pub async fn first_attempt(&mut self) {
        // An error means that the task ended.
        let _ = (&mut self.first_attempt).await;
    }
}

impl ReconcileTask {
    async fn run(mut self) -> Infallible {
        let mut ticks = interval(HEARTBEAT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let [changed, notified] = [&self.control.0.changed, &self.control.0.notified].map(Arc::clone);
        loop {
            let end = self.book.next_end;
            select! {
                _ = ticks.tick() => if !self.acl_denial.is_waiting() {
                    self.request_heartbeat(Duration::ZERO, MIN_HEARTBEAT_INTERVAL);
                },
                () = changed.notified() => self.request_heartbeat(Duration::ZERO, OWN_HEARTBEAT_INTERVAL),
                () = notified.notified() => {
                    self.request_heartbeat(notification_delay(fastrand::u64), MIN_HEARTBEAT_INTERVAL);
                }
                () = at(self.due), if self.in_flight.is_idle() => self.send_heartbeat(),
                head = self.in_flight.finished() => self.handle_head(head),
                loaded = RulesReconciler::finished(&mut self.rules) => self.handle_load(loaded),
                is_changed = self.book.finished() => if is_changed {
                    self.request_heartbeat(Duration::ZERO, MIN_HEARTBEAT_INTERVAL);
                },
                () = at(end) => self.book.activate(),
            }
        }
    }

    /// Requests a heartbeat after a delay, at least `rest` after the last one, unless there is an earlier one.
    fn request_heartbeat(&mut self, delay: Duration, rest: Duration) {
        let due = Some(Instant::now() + delay).max(self.heartbeat_at.map(|at| at + rest));
        self.due = self.due.into_iter().chain(due).min();
    }

    fn send_heartbeat(&mut self) {
        self.due = None;
        self.heartbeat_at = Some(Instant::now());
        let (control, instance) = (self.control.clone(), self.instance());
        let active = self.rules.as_ref().and_then(RulesReconciler::active);
        self.in_flight.start(async move { control.heartbeat(instance, active).await });
    }

    /// The heartbeat record of this instance.
    fn instance(&self) -> Instance {
        let state = self.status.now();
        let mut active_domains = (self.active_domains)();
        active_domains.retain(|domain| domain.len() <= MAX_DOMAIN_BYTES);
        active_domains.truncate(MAX_DOMAINS);
        Instance {
            id: self.control.instance().to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            version: state.version,
            fingerprint: state.fingerprint.clone(),
            generation: state.generation,
            region_generation: state.region_generation,
            started_at_ms: self.started_at_ms,
            seen_at_ms: now_ms(),
            active_domains,
            problem: state.problems(),
        }
    }

    fn handle_head(&mut self, head: Option<ControlResult<StoreHead>>) {
        match head {
            Some(Ok(head)) => {
                self.outage.recovered();
                self.acl_denial.recovered();
                self.subscribe();
                let connectivity = self.outage.connectivity();
                if self.book.reconcile(&head) {
                    self.request_heartbeat(Duration::ZERO, MIN_HEARTBEAT_INTERVAL);
                }
                if let Some(rules) = &mut self.rules {
                    rules.reconcile(&head, connectivity);
                }
                // In memory each instance has its own numbers, which would look like version skew.
                if self.control.source() == RulesSource::Redis {
                    let latest = head.current.as_ref().map_or(0, |current| current.number);
                    metrics::LATEST_VERSION.set(latest as f64);
                }
            }
            Some(Err(error)) if self.acl_denial.failed(self.control.source(), &error) => {
                self.outage.recovered();
            }
            Some(Err(error)) => {
                self.outage.failed(&error);
                if let Some(rules) = &mut self.rules {
                    rules.start_from_disk();
                }
            }
            None => {}
        }
        self.update_problem();
        self.finish_first_attempt();
    }

    fn subscribe(&mut self) {
        let control = &self.control;
        self.subscriber.get_or_insert_with(|| {
            let control = control.clone();
            AbortOnDropHandle::new(tokio::spawn(async move { control.subscribe().await }))
        });
    }

    fn handle_load(&mut self, result: Option<LoadResult>) {
        let Some((rules, result)) = self.rules.as_mut().zip(result) else { return };
        if rules.handle(result) {
            // There may be a newer version by now.
            self.request_heartbeat(Duration::ZERO, MIN_HEARTBEAT_INTERVAL);
        } else {
            self.finish_first_attempt();
        }
        self.update_problem();
    }

    /// Completes the first attempt, once no load is in progress.
    fn finish_first_attempt(&mut self) {
        let is_loading = self.rules.as_ref().is_some_and(|rules| !rules.is_idle());
        if !is_loading && let Some(first_attempt) = self.first_attempt.take() {
            // The receiver may have been dropped.
            let _ = first_attempt.send(());
        }
    }

    /// Updates the status with the present problem, unless rules have another source, which reports its own.
    fn update_problem(&mut self) {
        if let Some(rules) = &self.rules {
            let problem = rules.problem().or(self.outage.problem()).map(ToOwned::to_owned);
            if self.status.now().problem != problem {
                self.status.update(|state| state.problem.clone_from(&problem));
            }
        }
    }
}

/// Delay after a notification; `random` returns a number in a range.
fn notification_delay(random: impl FnOnce(RangeInclusive<u64>) -> u64) -> Duration {
    NOTIFICATION_DELAY + Duration::from_millis(random(0..=MAX_NOTIFICATION_SPREAD_MS))
}

/// Waits until this time, if there is one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Maximum number of domains in a heartbeat, and maximum length of their names.
const MAX_DOMAINS: usize = 100;
const MAX_DOMAIN_BYTES: usize = 256;

/// Returns the domains that had requests within the last minute, the latest first.
pub type ActiveDomains = fn() -> Vec<String>;

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn instances_spread_over_the_time_after_a_notification() {
        assert_eq!(notification_delay(|range| *range.start()), NOTIFICATION_DELAY);
        let most = NOTIFICATION_DELAY + Duration::from_millis(MAX_NOTIFICATION_SPREAD_MS);
        assert_eq!(notification_delay(|range| *range.end()), most);
        // Far below the time in which a change is active everywhere.
        assert!(most < HEARTBEAT_INTERVAL / 2);
    }
}
