//! The contract of every control-plane store, run against each of them.

/// Runs promises against every store.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $name() {
                let control = super::Control::memory(tollgate::control::RulesSource::Memory);
                super::$name(&crate::control::reconciled(control)).await;
            })+
        }
        mod redis {
            $(#[tokio::test] async fn $name() {
                let redis = crate::support::redis::Redis::start();
                let control = crate::control::redis_control(&redis.url(), "");
                super::$name(&crate::control::reconciled(control)).await;
            })+
        }
        mod sentinel {
            $(#[tokio::test] async fn $name() {
                let url = crate::support::sentinel::shared().url();
                let prefix = concat!("control:", stringify!($name), ":");
                let control = crate::control::redis_control(&url, prefix);
                super::$name(&crate::control::reconciled(control)).await;
            })+
        }
        mod cluster {
            $(#[tokio::test] async fn $name() {
                let url = crate::support::cluster::shared().url();
                let prefix = concat!("control:", stringify!($name), ":");
                let control = crate::control::redis_control(&url, prefix);
                super::$name(&crate::control::reconciled(control)).await;
            })+
        }
    };
}

mod bans;
mod lists;
mod versions;

use tokio::join;
use tollgate::control::{Action, ControlError, bounds};

use super::*;
use crate::control::{
    denied, draft, entries_in, held, now_ms, paged_audit, put, put_entry, reconciled, remove, switched,
};

fn entry(id: &str, expires_at_ms: Option<u64>) -> ListEntry {
    let entry = denied("edge", "api_key", id);
    ListEntry { reason: "abuse".into(), created_at_ms: now_ms(), expires_at_ms, ..entry }
}
