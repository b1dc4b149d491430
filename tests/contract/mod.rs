//! The contract of every store, run against each of them.

/// Runs promises against every store, once in a file. Where they share servers, each has keys of its own.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        promises! { for memory as _promise { Subject::memory() } $($name)+ }
        promises! { for redis as _promise { Subject::redis(Redis::start().store()) } $($name)+ }
        promises! { for sentinel as promise { Subject::redis(support::sentinel::shared().store(promise)) } $($name)+ }
        promises! { for cluster as promise { Subject::redis(support::cluster::shared().store(promise)) } $($name)+ }
    };
    (for $store:ident as $promise:ident { $subject:expr } $($name:ident)+) => {
        mod $store {
            use super::*;
            $(#[tokio::test] async fn $name() {
                let $promise = stringify!($name);
                super::$name(&$subject).await;
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

use crate::support::stores::{charging, charging_with};
use crate::support::{self, prelude::*};

const SECOND: u64 = 1_000_000;

fn limited(algorithm: Algorithm) -> Policy {
    policy(algorithm, 3, 60)
}
