//! What was counted, sent to a StatsD server under the names of envoyproxy/ratelimit, so that its dashboards go on.
//!
//! Every interval, a thread of its own reads what was counted since the last one ([`crate::metrics::Deltas`]), writes it
//! as lines of plain StatsD or DogStatsD (`lines`), packs those into packets (`packets`) and sends them (`socket`).
//! What a packet had is noted as told when the operating system has taken it, and is part of the next interval otherwise:
//! a server that is slow, blocked or gone costs one line of the log, and nothing else.

mod lines;
mod output;
mod packets;
mod rewrite;
mod settings;
mod socket;
mod target;

pub use self::{
    output::Statsd,
    rewrite::{Rewrite, RewriteError},
    settings::{StatsdFormat, StatsdSettings},
    target::{Target, TargetError},
};
