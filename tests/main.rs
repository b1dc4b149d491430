//! Everything that needs real servers or the whole program. The servers are started by the tests themselves;
//! one that is missing is a failure, not a skip.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod support;

mod acceptance;
mod acl;
mod api;
mod architecture;
mod atomic;
mod atomic_groups;
mod calendar;
mod capacity;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod cli_admin;
mod contract;
mod control;
mod costs;
mod dashboard;
mod degraded;
mod deploy;
mod diagnosis;
mod differential;
mod docs;
mod envoy;
mod exactness;
mod failure_summary;
mod faults;
mod fleet;
#[cfg(all(feature = "cli", feature = "regions"))]
mod generated_docs;
mod grpc_port;
mod http;
mod instances;
mod leases;
mod live_changes;
mod load;
mod load_shedding;
mod local_cache;
mod metrics;
mod outage;
mod overdraft;
mod migrate;
mod algorithm_plot;
mod process;
mod prose;
mod readiness;
mod recipes;
#[path = "../examples/docs.rs"]
mod reference_pages;
mod redis_servers;
mod reference;
#[cfg(feature = "regions")]
mod regions;
mod reload;
mod reservations;
mod bans;
mod budget_sum;
mod batched_runs;
mod scale_benchmark;
#[cfg(feature = "cli")]
mod schema;
mod secrets;
mod settlements;
mod several_limits;
mod statsd;
mod sync_auto;
#[cfg(feature = "regions")]
mod three_regions;
mod tls;
mod topologies;
mod traces;
mod workflows;
mod xds;
