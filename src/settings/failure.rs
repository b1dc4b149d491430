//! What happens while the store does not decide.

use std::num::NonZeroU32;

use clap::{ArgAction, Args};

use super::value::boolean;
use crate::rules::OnStoreError;

/// What happens while the store does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureSettings {
    /// For limits that say nothing themselves.
    pub on_store_error: OnStoreError,
    /// How many instances share the limits; they are counted in the store where this is absent.
    pub replicas: Option<NonZeroU32>,
    /// Whether the process is ready before the store was reached.
    pub ready_without_store: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "While the store does not decide")]
pub(super) struct FailureFlags {
    /// How limits are decided meanwhile that don't say it: `local` (this instance enforces its share of the limit),
    /// `allow`, `deny`, or `error` (gRPC UNAVAILABLE, so that Envoy's failure_mode_deny decides).
    #[arg(long, value_name = "local|allow|deny|error", default_value = "local", value_parser = way)]
    on_store_error: OnStoreError,
    /// How many instances share the limits, so that each enforces its share. Default: as many as are counted in the
    /// store while it works.
    #[arg(long, value_name = "COUNT")]
    replicas_hint: Option<NonZeroU32>,
    /// Be ready before the store was reached for the first time.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    ready_without_store: bool,
}

impl FailureFlags {
    pub(super) const fn resolve(&self) -> FailureSettings {
        FailureSettings {
            on_store_error: self.on_store_error,
            replicas: self.replicas_hint,
            ready_without_store: self.ready_without_store,
        }
    }
}

fn way(text: &str) -> Result<OnStoreError, String> {
    let known = OnStoreError::ALL.into_iter().find(|way| way.name() == text);
    known.ok_or_else(|| "expected local, allow, deny or error".to_owned())
}
