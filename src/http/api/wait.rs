//! How long the store of the rules is waited for.

use std::time::Duration;

use tokio::time::timeout;

use crate::control::ControlError;

/// For what is read: whoever looks is to be told within a second, an outage included.
const READ: Duration = Duration::from_millis(800);

/// For what is changed: whether that was done should rather be known.
const WRITE: Duration = Duration::from_secs(5);

/// Waits for what is read.
pub(super) async fn read<T>(
    reading: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    within(READ, reading).await
}

/// Waits for a change.
pub(super) async fn write<T>(
    writing: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    within(WRITE, writing).await
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    let late = |_| Err(ControlError::Unavailable(format!("no answer within {limit:?}")));
    timeout(limit, answer).await.unwrap_or_else(late)
}
