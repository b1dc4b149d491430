//! What an error of the servers means to a caller.

use std::time::Duration;

use ::redis::{ErrorKind, RedisError};

use super::connection::SendError;
use crate::StoreError;

/// The codes of errors that are answered before anything is done: the server is loading, without most of its cluster, a
/// replica, busy with a script of somebody else, or takes no writes; or nobody is logged in.
///
/// A script that was begun meets the latter ones at its first write, which is its first charge.
const UNCHARGED_ERROR_CODES: [&str; 13] = [
    "LOADING",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "BUSY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "NOSCRIPT",
    "NOAUTH",
    "MOVED",
    "ASK",
    "TRYAGAIN",
];

/// What a caller is told who had so much time.
pub(super) fn into_store_error(error: SendError, time_limit: Duration) -> StoreError {
    match error {
        SendError::NotConnected(reason) => StoreError::Unreachable(reason),
        SendError::BreakerOpen => StoreError::BreakerOpen,
        SendError::Overloaded => StoreError::Overloaded,
        SendError::QueueTimeout => StoreError::QueueTimeout(rounded(time_limit)),
        SendError::Timeout => StoreError::Timeout(rounded(time_limit)),
        SendError::MalformedReply => StoreError::MalformedReply,
        SendError::SlotMigrating(error) => StoreError::SlotMigrating(error.to_string()),
        SendError::Failed(error) => match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension if charged_nothing(&error) => {
                StoreError::Declined(error.to_string())
            }
            ErrorKind::Server(_) | ErrorKind::Extension => StoreError::Refused(error.to_string()),
            // Whatever the client made of the answer, the server may have obeyed.
            _ => StoreError::Disconnected(error.to_string()),
        },
    }
}

/// Whether the server says that it did nothing.
fn charged_nothing(error: &RedisError) -> bool {
    // Before Redis 7, what a script met is told within another error.
    let is_within = || error.detail().is_some_and(|detail| detail.contains("-OOM command not allowed"));
    error.code().is_some_and(|code| UNCHARGED_ERROR_CODES.contains(&code)) || is_within()
}

/// Time in tenths of a millisecond: what is more exact is of no use to who reads it.
fn rounded(time: Duration) -> Duration {
    let tenths = time.as_nanos().div_ceil(100_000);
    u64::try_from(tenths).map_or(time, |tenths| Duration::from_micros(tenths.saturating_mul(100)))
}
