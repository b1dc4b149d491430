//! Demand of keys on this instance, by which limits are recommended.

use std::{convert::Infallible, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_core::clock::Clock;
use tollgate_limiter::ActiveRules;
use tollgate_limiter::demand::{Demand, Recommendation};
use tollgate_limiter::talkers::{self, TakenDemand};
use tollgate_runtime::slices::{self, items_per_slice};

/// Time between two rounds: the precision of windows.
const DEMAND_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of slices in a round, which take less than half of the time between two.
const MAX_SLICES: usize = 400;

/// Rounds between two removals of rules that are not active.
const ROUNDS_OF_REMOVAL: u32 = 60;

/// Demand of this instance; clones share it.
#[derive(Clone, Debug, Default)]
pub struct DemandView(Arc<Mutex<Demand>>);

impl DemandView {
    /// Limits for the active rules, where this many instances share the traffic evenly. Takes some milliseconds.
    pub fn recommendations(&self, rules: &ActiveRules, instances: u32) -> Vec<Recommendation> {
        let rules = rules.load();
        rules.map(|rules| self.0.lock().recommendations(&rules, instances)).unwrap_or_default()
    }

    /// Adds demand for the active rules, in slices.
    fn add(&self, mut taken: TakenDemand, rules: &ActiveRules) {
        let items = items_per_slice(taken.count_of_keys, MAX_SLICES);
        // The same for all: it determines the window.
        let now_s = Clock::System.now().as_micros() / 1_000_000;
        loop {
            let slice: Vec<_> = taken.by_ref().take(items).collect();
            if slice.is_empty() {
                return;
            }
            if let Some(active) = rules.active().get() {
                self.0.lock().add(active.rules, active.overridden, &slice, now_s);
            }
            slices::pause();
        }
    }
}

/// Collects demand. Never returns.
pub(crate) async fn collect(rules: Arc<ActiveRules>, view: DemandView) -> Infallible {
    let mut ticks = interval(DEMAND_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut rounds = 0_u32;
    loop {
        ticks.tick().await;
        rounds = rounds.wrapping_add(1);
        let removes = rounds.is_multiple_of(ROUNDS_OF_REMOVAL);
        let (rules, view) = (Arc::clone(&rules), view.clone());
        // Matches thousands of keys. Fails only by a panic, which is logged.
        let _ = spawn_blocking(move || {
            view.add(talkers::take_demand(), &rules);
            if removes && let Some(active) = rules.active().get() {
                view.0.lock().retain(active.rules);
            }
        })
        .await;
    }
}
