//! Reasons why a store does not decide.

use std::time::Duration;

use crate::LateReply;

/// Reason why a store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No response in time; whether anything was charged is unknown, unless the reply still arrives.
    #[error("no response within {0:?}")]
    Timeout(Duration, Option<LateReply>),
    /// Not sent: the deadline passed in the queue. Nothing was charged.
    #[error("{}", queue_timeout(.0))]
    QueueTimeout(Duration),
    /// Not sent: the server owes responses, so the circuit breaker is open. Nothing was charged.
    #[error("not sent: circuit breaker open, the server does not respond")]
    BreakerOpen,
    /// Not sent: the queue of the server is full, or the response would miss its deadline. Nothing was charged.
    #[error("not sent: too many requests queued")]
    Overloaded,
    /// Not sent: an operator switched the domain to local decisions. Nothing was charged.
    #[error("not sent: an emergency switch is set")]
    Emergency,
    /// No connection. Nothing was charged.
    #[error("not connected: {0}")]
    Unreachable(String),
    /// The connection broke with the request in flight; whether anything was charged is unknown.
    #[error("connection lost: {0}")]
    Disconnected(String),
    /// The counters were migrating between servers until the deadline. Nothing was charged.
    #[error("counters are migrating to another server: {0}")]
    SlotMigrating(String),
    /// The server replied with an error that rules out a charge: it currently accepts no commands, or no writes, or not those
    /// of this user.
    #[error("store declined: {0}")]
    Declined(String),
    /// The server replied with an error; whether anything was charged is unknown.
    #[error("store error: {0}")]
    Refused(String),
    /// The reply is not of the agreed form; whether anything was charged is unknown.
    #[error("malformed reply from the store")]
    MalformedReply,
}

fn queue_timeout(time: &Duration) -> String {
    match time {
        &Duration::ZERO => "not sent: the deadline had passed on arrival".into(),
        time => format!("not sent: timed out in the queue after {time:?}"),
    }
}

impl StoreError {
    /// Whether the request certainly had no effect: nothing was charged, nor refunded.
    pub const fn charged_nothing(&self) -> bool {
        match self {
            Self::QueueTimeout(_)
            | Self::BreakerOpen
            | Self::Overloaded
            | Self::Emergency
            | Self::Unreachable(_)
            | Self::SlotMigrating(_)
            | Self::Declined(_) => true,
            Self::Timeout(..) | Self::Disconnected(_) | Self::Refused(_) | Self::MalformedReply => false,
        }
    }

    /// Whether the store may have decided other requests meanwhile: it was too slow for this one.
    pub const fn is_slowness(&self) -> bool {
        matches!(self, Self::Timeout(..) | Self::QueueTimeout(_) | Self::Overloaded)
    }

    /// Labels of all errors in metrics.
    pub const LABELS: [&'static str; 11] = [
        "timeout",
        "queue_timeout",
        "breaker_open",
        "overloaded",
        "emergency",
        "unreachable",
        "disconnected",
        "slot_migrating",
        "declined",
        "refused",
        "malformed_reply",
    ];

    /// The label of the error in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Timeout(..) => "timeout",
            Self::QueueTimeout(_) => "queue_timeout",
            Self::BreakerOpen => "breaker_open",
            Self::Overloaded => "overloaded",
            Self::Emergency => "emergency",
            Self::Unreachable(_) => "unreachable",
            Self::Disconnected(_) => "disconnected",
            Self::SlotMigrating(_) => "slot_migrating",
            Self::Declined(_) => "declined",
            Self::Refused(_) => "refused",
            Self::MalformedReply => "malformed_reply",
        }
    }
}
