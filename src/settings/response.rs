//! What is answered, and to what.

use clap::{ArgAction, Args, ValueEnum};

use super::parsers::{boolean, count, header_name, ratio};
use crate::{
    limiter::Modes,
    service::{HeaderNames, HeaderStyle, RequestBounds, ResponseOptions},
};

#[derive(Args, Debug)]
#[command(next_help_heading = "Answers")]
pub(super) struct ResponseFlags {
    /// Headers that tell clients about their limits: none, `RateLimit-Limit` and its two siblings,
    /// `X-RateLimit-Limit` and its siblings, or the IETF draft's `RateLimit` and `RateLimit-Policy`.
    #[arg(long, value_name = "STYLE", value_enum, default_value_t = Style::Off)]
    response_headers: Style,
    /// Another name for the header that carries the limit.
    #[arg(long, value_name = "NAME", value_parser = header_name)]
    limit_header: Option<String>,
    /// Another name for the header that carries what remains.
    #[arg(long, value_name = "NAME", value_parser = header_name)]
    remaining_header: Option<String>,
    /// Another name for the header that carries the seconds to the reset.
    #[arg(long, value_name = "NAME", value_parser = header_name)]
    reset_header: Option<String>,
    /// A denial carries an application/problem+json body that says which limit was hit.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    problem_body: bool,
    /// Answers that were made without the store carry the header `x-ratelimit-policy: degraded`.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    degraded_header: bool,
    /// Answers carry dynamic metadata: the request as it was understood, and what the rules add.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    dynamic_metadata: bool,
    /// Deny nothing; count what would have been denied.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    shadow_mode: bool,
    /// Every limit is a quota: a request is denied only when all that match it are exhausted.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    quota_mode: bool,
    /// Share of a limit, from 0 to 1, above which a hit counts as near the limit in metrics.
    #[arg(long, value_name = "RATIO", default_value = "0.8", value_parser = ratio)]
    near_limit_ratio: f64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Bounds of a request (what is larger is refused with INVALID_ARGUMENT)")]
pub(super) struct BoundFlags {
    /// Descriptors in a request, 65,535 at the most.
    #[arg(long, value_name = "COUNT", default_value_t = RequestBounds::default().max_descriptors, value_parser = descriptors)]
    max_descriptors: usize,
    /// Entries in a descriptor.
    #[arg(long, value_name = "COUNT", default_value_t = RequestBounds::default().max_entries, value_parser = count)]
    max_entries: usize,
    /// Size of a key, a value or a domain, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = RequestBounds::default().max_text_bytes, value_parser = count)]
    max_text_bytes: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Style {
    Off,
    Ratelimit,
    XRatelimit,
    Ietf,
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
            problem_body: self.problem_body,
            degraded_header: self.degraded_header,
            dynamic_metadata: self.dynamic_metadata,
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

/// What the script can tell of the keys of a call.
fn descriptors(text: &str) -> Result<usize, String> {
    match count(text)? {
        count if count <= usize::from(u16::MAX) => Ok(count),
        _ => Err("expected a whole number from 1 to 65535".to_owned()),
    }
}
