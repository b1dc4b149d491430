//! Raises an event for each threshold of a limit that was reached in a window.

use std::{convert::Infallible, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tollgate_control::{Control, EventKind, Occasion, OperatorEvent};
use tollgate_core::clock::Clock;
use tollgate_limiter::{ReachedThreshold, ReachedThresholds};

/// Time between two looks at the reached thresholds.
const INTERVAL: Duration = Duration::from_millis(500);

/// Room among the queued events that is left for those of other kinds.
const RESERVED_ROOM: usize = 64;

/// Raises events of reached thresholds.
#[derive(Debug)]
pub(super) struct ThresholdEvents {
    reached: ReachedThresholds,
    control: Control,
}

impl ThresholdEvents {
    pub(super) const fn new(reached: ReachedThresholds, control: Control) -> Self {
        Self { reached, control }
    }

    /// Raises events as thresholds are reached. Never returns. While the log does not respond, thresholds wait.
    pub(super) async fn run(self) -> Infallible {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let room = self.control.event_room().saturating_sub(RESERVED_ROOM);
            let now_s = Clock::System.now().as_micros() / 1_000_000;
            for reached in self.reached.take(room) {
                self.control.raise_event(event(reached, now_s));
            }
        }
    }
}

/// The window and the threshold, until the window ends.
fn occasion(reached: &ReachedThreshold, now_s: u64) -> Occasion {
    let ReachedThreshold { counted_key, percent, quota, window_ends_at, .. } = reached;
    Occasion {
        id: format!("{counted_key:016x} {percent} {} {window_ends_at}", quota.window.seconds()),
        lifetime: Duration::from_secs(u64::from(*window_ends_at).saturating_sub(now_s)),
    }
}

fn event(reached: ReachedThreshold, now_s: u64) -> OperatorEvent {
    let occasion = Some(occasion(&reached, now_s));
    let ReachedThreshold { domain, rule, key, counted_key: _, percent, used, quota, window_ends_at } =
        reached;
    let window = quota.window;
    let message = format!("{percent}% of {} hits per {window} are used: {used} hits.", quota.limit);
    OperatorEvent {
        kind: EventKind::ThresholdReached,
        domain: domain.into(),
        rule: Some(rule.into()),
        key: Some(key),
        message,
        figures: vec![
            ("threshold_percent", percent.into()),
            ("used_hits", used),
            ("limit_hits", quota.limit),
            ("window_seconds", window.seconds().into()),
            ("window_ends_at_ms", u64::from(window_ends_at).saturating_mul(1_000)),
        ],
        occasion,
    }
}
