//! Logs the queued events in the background.

use std::{convert::Infallible, time::Duration};

use tokio::time::{Instant, sleep};

use super::queue::QueuedEvent;
use crate::{Control, ControlError, metrics};

/// Time between two attempts to log an event.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which an event that cannot be logged is dropped.
const RETRY_PERIOD: Duration = Duration::from_secs(600);

/// Logs queued events, oldest first; never returns.
pub async fn log_events(control: Control) -> Infallible {
    // Exported at zero, so that a first loss is seen as a change.
    metrics::events_dropped(0);
    loop {
        let queued = control.event_queue().oldest().await;
        let (token, kind) = (queued.token.clone(), queued.event.kind);
        match log(&control, queued).await {
            Ok(true) => metrics::event_logged(kind),
            Ok(false) => {}
            Err(error) => {
                metrics::events_dropped(1);
                tracing::warn!(%error, kind = kind.name(), "event dropped: the log is unavailable");
            }
        }
        control.event_queue().remove(&token);
    }
}

async fn log(control: &Control, queued: QueuedEvent) -> Result<bool, ControlError> {
    let begun = Instant::now();
    loop {
        match control.log_event(queued.clone()).await {
            Err(ControlError::Unavailable(_)) if begun.elapsed() < RETRY_PERIOD => {
                sleep(RETRY_INTERVAL).await;
            }
            result => return result,
        }
    }
}
