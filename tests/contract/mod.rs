//! The contract of every store, run against each of them.

/// Runs promises against every store, once in a file.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(&super::Subject::memory()).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $name() {
                let redis = crate::support::redis::Redis::start();
                super::$name(&super::Subject::Redis(redis.store())).await;
            })+
        }
        // Each promise has keys of its own on servers that all of them share.
        mod sentinel {
            $(#[tokio::test] async fn $name() {
                let store = crate::support::sentinel::shared().store(stringify!($name));
                super::$name(&super::Subject::Redis(store)).await;
            })+
        }
        mod cluster {
            $(#[tokio::test] async fn $name() {
                let store = crate::support::cluster::shared().store(stringify!($name));
                super::$name(&super::Subject::Redis(store)).await;
            })+
        }
    };
}

mod leases;
mod all_or_none;
mod bans;
mod changed_rules;
mod charges;
mod overdraft;
mod windows;

use crate::support::{
    prelude::*,
    stores::{charging, charging_with},
};

const SECOND: u64 = 1_000_000;

fn limited(algorithm: Algorithm) -> Policy {
    policy(algorithm, 3, 60)
}
