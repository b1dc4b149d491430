//! Errors of commands, and their translation into [`StoreError`].

use std::time::Duration;

use ::redis::{ErrorKind, RedisError, ServerErrorKind};
use tollgate_runtime::redact;

use super::store_clock::OUTSIDE;
use crate::{LateReply, StoreError};

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

/// Codes and texts of errors that another set-up of the server avoids: a missing permission or command, a node of a cluster.
/// Redis returns them in place of one command, which then has no effect.
const SETUP_ERROR_CODES: [&str; 3] = ["NOPERM", "CROSSSLOT", "WRONGTYPE"];
const SETUP_ERROR_TEXTS: [&str; 4] = [
    "unknown command",
    "Unknown Redis command called from",
    "The user executing the script",
    "ACL failure in script",
];

/// Mark of the script on an error after the first write of a call, which may have been a charge.
const HALF_WRITTEN: &str = "half written: ";

/// Reason why a command has no reply.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SendError {
    /// Not sent: no connection.
    #[error("not connected: {0}")]
    NotConnected(String),
    /// Not sent: the deadline passed in the queue.
    #[error("timed out in the queue")]
    QueueTimeout,
    /// Not sent: the server owes responses.
    #[error("circuit breaker open")]
    BreakerOpen,
    /// Not sent: too many requests are queued.
    #[error("too many requests queued")]
    Overloaded,
    /// Sent; the reply is an error, or the connection broke.
    #[error("{}", shown(.0))]
    Failed(RedisError),
    /// Sent; the deadline passed before the response.
    #[error("no response in time")]
    Timeout,
    /// Sent; the deadline passed before the response, which is still awaited.
    #[error("no response in time")]
    Late(LateReply),
    /// Sent; the reply is not of the agreed form.
    #[error("malformed reply")]
    MalformedReply,
    /// Not executed: keys were migrating between nodes until the deadline.
    #[error("{}", shown(.0))]
    SlotMigrating(RedisError),
    /// Not executed: the node of a command on several slots does not serve this one, or did not have the keys.
    #[error("{}", shown(.0))]
    Unreached(RedisError),
}

impl SendError {
    /// Whether the request certainly had no effect.
    pub(super) fn charged_nothing(&self) -> bool {
        into_store_error(self.clone(), Duration::ZERO).charged_nothing()
    }

    /// Whether the error persists as long as the connection, which has to be replaced therefore.
    pub(super) fn needs_reconnect(&self) -> bool {
        matches!(self, Self::Failed(error) if needs_reconnect(error))
    }

    /// Whether the script has to be loaded first, in which case nothing was charged.
    pub(super) fn is_unknown_script(&self) -> bool {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        matches!(self, Self::Failed(error) if error.kind() == unknown)
    }
}

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

/// Translates an error of a script other than that of requests. Such a script does not mark an error after its first write.
pub(super) fn into_script_error(error: SendError, time_limit: Duration) -> StoreError {
    match error {
        SendError::Failed(error) if is_of_setup(&error) => StoreError::Refused(shown(&error)),
        error => into_store_error(error, time_limit),
    }
}

/// The error in logs and responses, in the server's own words. Without the arguments of a command that it lacks, which may
/// be a password.
pub(super) fn shown(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    redact::bounded(text.split(", with args").next().unwrap_or_default())
}

/// Whether the reply rules out an effect.
fn charged_nothing(error: &RedisError) -> bool {
    let is_half_written = error.detail().is_some_and(|detail| detail.contains(HALF_WRITTEN));
    !is_half_written && (is_of_state(error) || is_of_setup(error))
}

/// Whether the server takes no commands, or no writes, at present.
pub(super) fn is_of_state(error: &RedisError) -> bool {
    has(error, &UNCHARGED_ERROR_CODES, &UNCHARGED_ERROR_TEXTS)
}

/// Whether the server does so until its set-up changes.
fn is_of_setup(error: &RedisError) -> bool {
    has(error, &SETUP_ERROR_CODES, &SETUP_ERROR_TEXTS)
}

fn has(error: &RedisError, codes: &[&str], texts: &[&str]) -> bool {
    let has_text = |detail: &str| texts.iter().any(|text| detail.contains(text));
    error.code().is_some_and(|code| codes.contains(&code)) || error.detail().is_some_and(has_text)
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

/// Whether an error persists as long as the connection: the connection broke, or leads to a server that no longer takes
/// writes, such as a master demoted by a failover. Another connection may lead to the new master.
pub(super) fn needs_reconnect(error: &RedisError) -> bool {
    // Before Redis 7, the error of a command within a script is nested in another error.
    let is_within = || error.detail().is_some_and(|detail| detail.contains("READONLY"));
    error.is_unrecoverable_error() || is_demoted(error) || is_within()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether errors of these texts are known to have charged nothing: of a request, and of another script.
    fn is_uncharged(reply: &str) -> [bool; 2] {
        let value = ::redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).expect("a reply");
        let error = SendError::Failed(value.extract_error().expect_err("an error"));
        let script = into_script_error(error.clone(), Duration::ZERO);
        [error.charged_nothing(), script.charged_nothing()]
    }

    #[test]
    fn errors_before_the_first_write_prove_that_nothing_was_charged() {
        // As Redis 6.2, 7.0, 7.2 and 8 have them.
        for reply in [
            "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
            "NOPERM User app has no permissions to run the 'evalsha' command",
            "ERR Error running script (call to f_0a): @user_script:9: The user executing the script can't run this command",
            "ERR The user executing the script can't run this command or subcommand script: 0a, on @user_script:9.",
            "NOPERM ACL failure in script: User app has no permissions to run the 'set' command",
            "ERR unknown command 'EVALSHA', with args beginning with: '0a'",
            "ERR Unknown Redis command called from script script: 0a, on @user_script:9.",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ] {
            assert_eq!(is_uncharged(reply), [true, false], "{reply}");
            assert_eq!(is_uncharged(&format!("ERR half written: {reply}")), [false; 2], "{reply}");
        }
        assert_eq!(is_uncharged("OOM command not allowed when used memory > 'maxmemory'."), [true; 2]);
        // Of a proxy.
        assert_eq!(is_uncharged("ERR upstream failure"), [false; 2]);
    }

    #[test]
    fn a_shown_error_has_the_words_of_the_server_without_arguments() {
        let error = |reply: &[u8]| {
            let value = ::redis::parse_redis_value(reply).expect("a reply");
            shown(&value.extract_error().expect_err("an error"))
        };
        assert_eq!(error(b"-NOAUTH Authentication required.\r\n"), "NOAUTH Authentication required.");
        assert_eq!(
            error(b"-ERR unknown command 'AUTH', with args beginning with: 'secret'\r\n"),
            "ERR unknown command 'AUTH'"
        );
    }
}
