//! Configurable parts of responses, and bounds of requests.

use std::time::Duration;

/// Optional parts of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseOptions {
    /// Headers that inform clients about their limits.
    pub headers: HeaderStyle,
    /// Format of the reset header of [`HeaderStyle::Triple`].
    pub reset_format: ResetFormat,
    /// Name of an additional header with the reset as Unix time, unless the style is [`HeaderStyle::Off`].
    pub reset_at_header: Option<String>,
    /// Remaining hits that the headers of degraded responses report.
    pub degraded_remaining: DegradedRemaining,
    /// Whether a denial has a `Retry-After`.
    pub retry_after_header: bool,
    /// Maximum time by which a denied client returns later, for limits whose rule states none; in whole seconds.
    pub retry_after_spread: Duration,
    /// Whether a denial carries an `application/problem+json` body.
    pub problem_body: bool,
    /// Whether a header marks degraded responses.
    pub degraded_header: bool,
    /// Whether responses carry dynamic metadata: the decoded request, and the metadata of the rules that let it pass.
    pub dynamic_metadata: bool,
    /// Responses whose metadata names the rule that decided.
    pub decision_metadata: NamedDecisions,
    /// Whether that metadata has the counted key, which has values of the request.
    pub decision_key: bool,
}

/// Responses whose dynamic metadata names the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedDecisions {
    /// No decisions.
    Off,
    /// Denials, also those that shadow mode lets pass.
    Denials,
    /// All of requests that a rule or list decides.
    All,
}

impl ResponseOptions {
    /// Whether headers report points in time, which depend on the moment of the response.
    pub(super) const fn has_unix_times(&self) -> bool {
        self.reset_at_header.is_some() || matches!(self.reset_format, ResetFormat::UnixTime)
    }
}

/// Limit headers that Envoy adds to the HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderStyle {
    /// No headers except, on a denial, a `Retry-After`.
    Off,
    /// Limit, remaining hits and seconds until reset, in three headers.
    Triple(HeaderNames),
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10.
    Ietf,
}

/// Format of the reset header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetFormat {
    /// Seconds until reset.
    Seconds,
    /// Seconds since the Unix epoch.
    UnixTime,
}

/// Remaining hits in the headers of a response that was decided without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DegradedRemaining {
    /// Remaining hits of the instance's share, or 0 if it does not count.
    Share,
    /// -1, which no counter ever has.
    MinusOne,
}

/// Names of the headers of [`HeaderStyle::Triple`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// Header with the limit.
    pub limit: String,
    /// Header with the remaining hits.
    pub remaining: String,
    /// Header with the seconds until reset.
    pub reset: String,
}

impl HeaderNames {
    /// `RateLimit-*`, the names of envoyproxy/ratelimit.
    pub fn ratelimit() -> Self {
        Self::with_prefix("RateLimit-")
    }

    /// `X-RateLimit-*`, the most widespread names.
    pub fn x_ratelimit() -> Self {
        Self::with_prefix("X-RateLimit-")
    }

    fn with_prefix(prefix: &str) -> Self {
        let name = |end: &str| format!("{prefix}{end}");
        Self { limit: name("Limit"), remaining: name("Remaining"), reset: name("Reset") }
    }
}
