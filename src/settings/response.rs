//! Settings of responses, request bounds and global modes.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use tollgate_limiter::Modes;
use tollgate_rules::MAX_RETRY_AFTER_SPREAD;

use super::parsers::{boolean, count, duration, header_name, ratio};
use crate::service::{
    DegradedRemaining, HeaderNames, HeaderStyle, NamedDecisions, RequestBounds, ResetFormat, ResponseOptions,
};

#[derive(Args, Debug)]
#[command(next_help_heading = "Responses")]
pub(super) struct ResponseFlags {
    /// Rate-limit headers of responses: none, `RateLimit-Limit` with `-Remaining` and `-Reset`, `X-RateLimit-Limit` with
    /// `-Remaining` and `-Reset`, or `RateLimit` and `RateLimit-Policy` of the IETF draft.
    #[arg(long, value_name = "STYLE", value_enum, default_value_t = Style::Off)]
    response_headers: Style,
    /// Name of the header with the limit. Default: by --response-headers.
    #[arg(long, value_name = "NAME", value_parser = header_name)]
    limit_header: Option<String>,
    /// Name of the header with the remaining hits. Default: by --response-headers.
    #[arg(long, value_name = "NAME", value_parser = header_name)]
    remaining_header: Option<String>,
    /// Name of the header with the reset. Default: by --response-headers.
    #[arg(long, value_name = "NAME", value_parser = header_name)]
    reset_header: Option<String>,
    /// Format of the header with the reset: seconds until then, or Unix time in seconds. The IETF draft has only the former.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Reset::Seconds)]
    reset_format: Reset,
    /// Name of an additional header with the reset as Unix time in seconds, for every --response-headers but off.
    #[arg(long, value_name = "NAME", value_parser = header_name)]
    reset_at_header: Option<String>,
    /// Header `Retry-After` of denials. Without it, Envoy's `enable_retry_after_header` decides for each filter whether there
    /// is one.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    retry_after_header: bool,
    /// Maximum time by which denied clients return later, for limits without `retry_after_spread`: each key adds whole
    /// seconds up to it to `Retry-After`, always the same number, so that clients do not return in the same second.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = spread)]
    retry_after_spread: Duration,
    /// application/problem+json body of denials, with the exceeded limit.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    problem_body: bool,
    /// Header `x-ratelimit-policy: degraded` of responses that were decided without the store.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    degraded_header: bool,
    /// Remaining hits in headers of responses that were decided without the store: of the instance's share, or -1. With the
    /// IETF draft, -1 omits `RateLimit`.
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Remaining::Share)]
    degraded_remaining: Remaining,
    /// Dynamic metadata of responses: the decoded request, and the metadata of its rules.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    dynamic_metadata: bool,
    /// Responses whose dynamic metadata names the rule that decided, for access logs: those that deny or would without shadow
    /// mode, or all.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Named::Denials)]
    decision_metadata: Named,
    /// Key of the counter in that metadata: values of the request, which then may be in access logs.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    decision_key: bool,
    /// Global shadow mode: requests over a limit are allowed and counted.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    shadow_mode: bool,
    /// Quota mode of every limit: a request is denied only when all of its limits are exhausted.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    quota_mode: bool,
    /// Share of a limit, from 0 to 1, above which hits count as near the limit in metrics.
    #[arg(long, value_name = "RATIO", default_value = "0.8", value_parser = ratio)]
    near_limit_ratio: f64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Request bounds (larger requests are refused with INVALID_ARGUMENT)")]
pub(super) struct BoundFlags {
    /// Maximum number of descriptors in a request, at most 65,535.
    #[arg(long, value_name = "COUNT", default_value_t = RequestBounds::default().max_descriptors, value_parser = descriptors)]
    max_descriptors: usize,
    /// Maximum number of entries in a descriptor.
    #[arg(long, value_name = "COUNT", default_value_t = RequestBounds::default().max_entries, value_parser = count::<usize>)]
    max_entries: usize,
    /// Maximum size of a key, a value or a domain, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = RequestBounds::default().max_text_bytes, value_parser = count::<usize>)]
    max_text_bytes: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Style {
    Off,
    Ratelimit,
    XRatelimit,
    Ietf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reset {
    Seconds,
    UnixTime,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Named {
    Off,
    Denials,
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Remaining {
    Share,
    MinusOne,
}

impl ResponseFlags {
    pub(super) const fn modes(&self) -> Modes {
        Modes { shadow: self.shadow_mode, quota: self.quota_mode, near_limit_ratio: self.near_limit_ratio }
    }

    pub(super) fn resolve(self) -> ResponseOptions {
        let renamed = |names: HeaderNames| HeaderNames {
            limit: self.limit_header.unwrap_or(names.limit),
            remaining: self.remaining_header.unwrap_or(names.remaining),
            reset: self.reset_header.unwrap_or(names.reset),
        };
        ResponseOptions {
            headers: match self.response_headers {
                Style::Off => HeaderStyle::Off,
                Style::Ratelimit => HeaderStyle::Triple(renamed(HeaderNames::ratelimit())),
                Style::XRatelimit => HeaderStyle::Triple(renamed(HeaderNames::x_ratelimit())),
                Style::Ietf => HeaderStyle::Ietf,
            },
            reset_format: match self.reset_format {
                Reset::Seconds => ResetFormat::Seconds,
                Reset::UnixTime => ResetFormat::UnixTime,
            },
            reset_at_header: self.reset_at_header,
            degraded_remaining: match self.degraded_remaining {
                Remaining::Share => DegradedRemaining::Share,
                Remaining::MinusOne => DegradedRemaining::MinusOne,
            },
            retry_after_header: self.retry_after_header,
            retry_after_spread: self.retry_after_spread,
            problem_body: self.problem_body,
            degraded_header: self.degraded_header,
            dynamic_metadata: self.dynamic_metadata,
            decision_metadata: match self.decision_metadata {
                Named::Off => NamedDecisions::Off,
                Named::Denials => NamedDecisions::Denials,
                Named::All => NamedDecisions::All,
            },
            decision_key: self.decision_key,
        }
    }
}

impl BoundFlags {
    pub(super) const fn resolve(&self) -> RequestBounds {
        RequestBounds {
            max_descriptors: self.max_descriptors,
            max_entries: self.max_entries,
            max_text_bytes: self.max_text_bytes,
        }
    }
}

/// Parses a spread: whole seconds, as in rules, at most a day.
fn spread(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        spread if spread.subsec_nanos() == 0 && spread <= MAX_RETRY_AFTER_SPREAD => Ok(spread),
        _ => Err("expected whole seconds up to 24 hours".to_owned()),
    }
}

/// Parses a number of descriptors: the Redis script counts the keys of a request in 16 bits.
fn descriptors(text: &str) -> Result<usize, String> {
    match count::<usize>(text)? {
        count if count <= usize::from(u16::MAX) => Ok(count),
        _ => Err("expected a whole number from 1 to 65535".to_owned()),
    }
}
