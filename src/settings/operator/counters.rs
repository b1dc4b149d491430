//! `tollgate counters`.

use std::num::NonZeroU64;

use clap::{Args, Subcommand};

use super::{OperatorSettings, Task, connection::ConnectionFlags};
use crate::settings::{
    error::Problem,
    parsers::{DescriptorWords, descriptor},
};

#[derive(Args, Debug)]
pub(in crate::settings) struct CountersFlags {
    #[command(subcommand)]
    verb: CountersVerb,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum CountersVerb {
    /// Look at the counter that a descriptor meets.
    Read {
        #[command(flatten)]
        counter: CounterFlags,
    },
    /// Have it as good as unused.
    Reset {
        #[command(flatten)]
        counter: CounterFlags,
        /// Why; goes to the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Give hits back to it. It never falls below zero.
    Refund {
        #[command(flatten)]
        counter: CounterFlags,
        /// How many.
        #[arg(long, value_name = "COUNT")]
        hits: NonZeroU64,
        /// Why; goes to the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Args, Debug)]
struct CounterFlags {
    /// Domain of the rule.
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// The descriptor, its entries joined by commas.
    #[arg(value_name = "KEY=VALUE,…", value_parser = descriptor)]
    descriptor: DescriptorWords,
}

/// The counter that is meant: that which such a descriptor meets.
#[derive(Clone, Debug)]
pub struct CounterWords {
    /// Its domain.
    pub domain: String,
    /// The descriptor.
    pub descriptor: DescriptorWords,
}

/// What is asked about a counter.
#[derive(Clone, Debug)]
pub enum CounterTask {
    /// What it says.
    Read(CounterWords),
    /// To have it as good as unused, and why.
    Reset(CounterWords, Option<String>),
    /// To give so many hits back, and why.
    Refund(CounterWords, NonZeroU64, Option<String>),
}

impl CountersFlags {
    pub(in crate::settings) fn resolve(self) -> Result<OperatorSettings, Problem> {
        let words = |CounterFlags { domain, descriptor }| CounterWords { domain, descriptor };
        let task = match self.verb {
            CountersVerb::Read { counter } => CounterTask::Read(words(counter)),
            CountersVerb::Reset { counter, reason } => CounterTask::Reset(words(counter), reason),
            CountersVerb::Refund { counter, hits, reason } => {
                CounterTask::Refund(words(counter), hits, reason)
            }
        };
        self.connection.resolve(Task::Counter(task))
    }
}
