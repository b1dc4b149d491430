//! Translation of errors of the servers into [`StoreError`].

use std::time::Duration;

use ::redis::{ErrorKind, RedisError, ServerErrorKind};
use tollgate_runtime::foreign_text;

use super::{connection::SendError, store_clock::OUTSIDE};
use crate::StoreError;

/// Error codes that are returned before anything is executed: the server is loading, lacks most of its cluster, is a
/// replica, is busy with another client's script, or takes no writes; or the client is not authenticated.
///
/// A running script meets the latter errors at its first write, which is its first charge.
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

/// Begins of such errors without a code of their own: those that a server before Redis 7 nests in the error of the script,
/// that of a node that is cut off from its cluster and has `cluster-allow-reads-when-down`, and the script's own on a time
/// outside of the windows that the call states, before its first write.
const UNCHARGED_ERROR_TEXTS: [&str; 6] = [
    OUTSIDE,
    "-OOM command not allowed",
    "-NOREPLICAS Not enough",
    "-READONLY You can't write",
    "-MISCONF ",
    "Script attempted to execute a write command while the cluster is down",
];

/// Translates an error of a request that had `time_limit` in all.
pub(super) fn into_store_error(error: SendError, time_limit: Duration) -> StoreError {
    match error {
        SendError::NotConnected(reason) => StoreError::Unreachable(reason),
        SendError::BreakerOpen => StoreError::BreakerOpen,
        SendError::Overloaded => StoreError::Overloaded,
        SendError::QueueTimeout => StoreError::QueueTimeout(rounded(time_limit)),
        SendError::Timeout => StoreError::Timeout(rounded(time_limit), None),
        SendError::Late(reply) => StoreError::Timeout(rounded(time_limit), Some(reply)),
        SendError::MalformedReply => StoreError::MalformedReply,
        SendError::SlotMigrating(error) => StoreError::SlotMigrating(shown(&error)),
        SendError::Unreached(error) => StoreError::Declined(shown(&error)),
        SendError::Failed(error) => match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension if charged_nothing(&error) => {
                StoreError::Declined(shown(&error))
            }
            ErrorKind::Server(_) | ErrorKind::Extension => StoreError::Refused(shown(&error)),
            // Whatever the client made of the reply, the server may have executed the command.
            _ => StoreError::Disconnected(shown(&error)),
        },
    }
}

/// The error in logs and responses: its text is the server's.
fn shown(error: &RedisError) -> String {
    foreign_text::bounded(&error.to_string())
}

impl SendError {
    /// Whether the request certainly had no effect.
    pub(super) fn charged_nothing(&self) -> bool {
        into_store_error(self.clone(), Duration::ZERO).charged_nothing()
    }
}

/// Whether the reply rules out an effect.
pub(super) fn charged_nothing(error: &RedisError) -> bool {
    let has_text = |detail: &str| UNCHARGED_ERROR_TEXTS.iter().any(|text| detail.contains(text));
    let is_within = || error.detail().is_some_and(has_text);
    error.code().is_some_and(|code| UNCHARGED_ERROR_CODES.contains(&code)) || is_within()
}

/// Whether the server is not a master any more.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown].map(ErrorKind::Server).contains(&error.kind())
}

/// Rounds up to tenths of a millisecond: more precision does not help a reader.
fn rounded(time: Duration) -> Duration {
    let tenths = time.as_nanos().div_ceil(100_000);
    u64::try_from(tenths).map_or(time, |tenths| Duration::from_micros(tenths.saturating_mul(100)))
}
