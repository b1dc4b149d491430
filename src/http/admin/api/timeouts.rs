//! Timeouts of calls to the control store.

use std::time::Duration;

use tokio::time::timeout;
use tollgate_control::ControlError;

/// For reads: a page is answered within a second, also during an outage.
const READ_TIMEOUT: Duration = Duration::from_millis(800);

/// For writes: longer, as their outcome is unknown after a timeout.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Awaits a read.
pub(super) async fn read<T>(call: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    within(READ_TIMEOUT, call).await
}

/// Awaits a write.
pub(super) async fn write<T>(call: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    within(WRITE_TIMEOUT, call).await
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    let late = |_| Err(ControlError::Unavailable(format!("no response within {limit:?}")));
    timeout(limit, call).await.unwrap_or_else(late)
}
