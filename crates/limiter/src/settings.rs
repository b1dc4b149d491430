//! Flags of decisions: modes of the process, and what happens while the store fails.

use std::num::NonZeroU32;

use clap::{ArgAction::Set, Args};
use tollgate_flags::{boolean, count, named, ratio};
use tollgate_rules::OnStoreError;

/// Decisions while the store fails.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Store errors")]
pub struct StoreErrorSettings {
    /// Policy of limits without `on_store_error` while the store fails: `local` (each instance enforces its share of the
    /// limit), `allow`, `deny`, or `error` (gRPC UNAVAILABLE, so that Envoy's failure_mode_deny decides).
    #[arg(id = "on-store-error", long, value_name = "local|allow|deny|error", default_value = "local")]
    #[arg(value_parser = named(OnStoreError::ALL, OnStoreError::name), hide_possible_values = true)]
    pub policy: OnStoreError,
    /// Number of instances that share the limits, for the share of each with `local`. Default: the number counted in the
    /// store while it is reachable.
    #[arg(id = "replicas-hint", long, value_name = "COUNT", value_parser = count::<NonZeroU32>)]
    pub replicas: Option<NonZeroU32>,
    /// Readiness before the first decision of the store.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub ready_without_store: bool,
}

/// Modes that apply to every rule of the process.
#[derive(Args, Clone, Copy, Debug, PartialEq)]
#[command(next_help_heading = "Modes")]
pub struct Modes {
    /// Global shadow mode: requests over a limit are allowed and counted.
    #[arg(id = "shadow-mode", long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub shadow: bool,
    /// Quota mode of every limit: a request is denied only when all of its limits are exhausted.
    #[arg(id = "quota-mode", long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub quota: bool,
    /// Share of a limit, from 0 to 1, above which hits count as near the limit in metrics.
    #[arg(long, value_name = "RATIO", default_value = "0.8", value_parser = ratio)]
    pub near_limit_ratio: f64,
}

impl Default for Modes {
    fn default() -> Self {
        Self { shadow: false, quota: false, near_limit_ratio: 0.8 }
    }
}
