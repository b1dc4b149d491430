//! Configurable parts of responses.

use clap::{ArgAction::Set, Args, ValueEnum};
use tollgate_flags::{boolean, header_name};

/// Optional parts of a response.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Responses")]
pub struct ResponseOptions {
    /// Rate-limit headers of responses: none, `RateLimit-Limit` with `-Remaining` and `-Reset`, `X-RateLimit-Limit` with
    /// `-Remaining` and `-Reset`, or `RateLimit` and `RateLimit-Policy` of the IETF draft.
    #[arg(id = "response-headers", long, value_name = "STYLE", value_enum, default_value_t = HeaderStyle::Off)]
    pub headers: HeaderStyle,
    /// Names of these headers: limit=NAME, remaining=NAME and reset=NAME in place of those of --response-headers (not of the
    /// IETF draft), and reset-at=NAME for a header with the reset as Unix time in seconds, which may be the one of the
    /// reset.
    #[arg(long, value_name = "HEADER=NAME,…", default_value = "", hide_default_value = true)]
    #[arg(value_parser = header_names)]
    pub header_names: HeaderNames,
    /// Header `Retry-After` of denials. Without it, Envoy's `enable_retry_after_header` decides for each filter whether there
    /// is one.
    #[arg(long, value_name = "BOOL", default_value = "true", action = Set, value_parser = boolean)]
    pub retry_after_header: bool,
    /// application/problem+json body of denials, with the exceeded limit.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub problem_body: bool,
    /// Dynamic metadata of responses: the decoded request, and the metadata of its rules.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub dynamic_metadata: bool,
    /// Responses whose dynamic metadata names the rule that decided, for access logs: those that deny or would without shadow
    /// mode, or all. The key of the counter has values of the request, which then may be in access logs.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = NamedDecisions::Denials)]
    pub decision_metadata: NamedDecisions,
}

/// Limit headers that Envoy adds to the HTTP response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HeaderStyle {
    /// No headers except, on a denial, a `Retry-After`.
    Off,
    /// `RateLimit-*`: limit, remaining hits and seconds until reset, as envoyproxy/ratelimit has them.
    Ratelimit,
    /// `X-RateLimit-*`, the most widespread names.
    XRatelimit,
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10.
    Ietf,
}

/// Names of headers in place of those of their [`HeaderStyle`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// Header with the limit.
    pub limit: Option<String>,
    /// Header with the remaining hits.
    pub remaining: Option<String>,
    /// Header with the seconds until reset.
    pub reset: Option<String>,
    /// Header with the reset as Unix time, which may be the one of the reset.
    pub reset_at: Option<String>,
}

/// Responses whose dynamic metadata names the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NamedDecisions {
    /// No decisions.
    Off,
    /// Denials, also those that shadow mode lets pass.
    Denials,
    /// Denials, without the key of the counter.
    DenialsWithoutKey,
    /// All of requests that a rule or list decides.
    All,
    /// All, without the key of the counter.
    AllWithoutKey,
}

fn header_names(text: &str) -> Result<HeaderNames, String> {
    let mut names = HeaderNames::default();
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        let (header, name) = pair.split_once('=').unwrap_or_default();
        let place = match header.trim() {
            "limit" => &mut names.limit,
            "remaining" => &mut names.remaining,
            "reset" => &mut names.reset,
            "reset-at" => &mut names.reset_at,
            _ => return Err("expected limit=NAME, remaining=NAME, reset=NAME or reset-at=NAME".to_owned()),
        };
        *place = Some(header_name(name.trim())?);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_headers_are_stated_one_by_one() {
        let names = header_names("limit=A, reset-at=X-Reset").expect("good");
        assert_eq!((names.limit.as_deref(), names.reset_at.as_deref()), (Some("A"), Some("X-Reset")));
        assert_eq!((names.remaining, names.reset), (None, None));
        assert_eq!(header_names(""), Ok(HeaderNames::default()));
        for bad in ["limit", "limit=", "limit=a b", "other=A", "A", "limit=A,"] {
            assert!(header_names(bad).is_err(), "{bad}");
        }
    }
}
