//! Settings of degraded mode: decisions while the store fails.

use std::num::NonZeroU32;

use clap::{ArgAction, Args};
use tollgate_rules::OnStoreError;

use super::parsers::{boolean, count};

/// Decisions while the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreErrorSettings {
    /// Policy of limits without one of their own.
    pub policy: OnStoreError,
    /// Number of instances that share the limits. `None`: counted in the store.
    pub replicas: Option<NonZeroU32>,
    /// Whether the process is ready before the first decision of the store.
    pub ready_without_store: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Store errors")]
pub(super) struct StoreErrorFlags {
    /// Policy of limits without `on_store_error` while the store fails: `local` (each instance enforces its share of the
    /// limit), `allow`, `deny`, or `error` (gRPC UNAVAILABLE, so that Envoy's failure_mode_deny decides).
    #[arg(long, value_name = "local|allow|deny|error", default_value = "local", value_parser = policy)]
    on_store_error: OnStoreError,
    /// Number of instances that share the limits, for the share of each with `local`. Default: the number counted in the
    /// store while it is reachable.
    #[arg(long, value_name = "COUNT", value_parser = count::<NonZeroU32>)]
    replicas_hint: Option<NonZeroU32>,
    /// Readiness before the first decision of the store.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    ready_without_store: bool,
}

impl StoreErrorFlags {
    pub(super) const fn resolve(&self) -> StoreErrorSettings {
        StoreErrorSettings {
            policy: self.on_store_error,
            replicas: self.replicas_hint,
            ready_without_store: self.ready_without_store,
        }
    }
}

fn policy(text: &str) -> Result<OnStoreError, String> {
    let known = OnStoreError::ALL.into_iter().find(|policy| policy.name() == text);
    known.ok_or_else(|| "expected local, allow, deny or error".to_owned())
}
