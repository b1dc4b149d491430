//! Arguments of `tollgate counters`.

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
    /// Read the counter of a descriptor.
    Read {
        #[command(flatten)]
        counter: CounterFlags,
    },
    /// Reset the counter of a descriptor.
    Reset {
        #[command(flatten)]
        counter: CounterFlags,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Refund hits to the counter of a descriptor, at most to zero.
    Refund {
        #[command(flatten)]
        counter: CounterFlags,
        /// Number of hits.
        #[arg(long, value_name = "COUNT")]
        hits: NonZeroU64,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Args, Debug)]
struct CounterFlags {
    /// Domain of the rule.
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// Descriptor, its entries separated by commas.
    #[arg(value_name = "KEY=VALUE,…", value_parser = descriptor)]
    descriptor: DescriptorWords,
}

/// Counter of a descriptor.
#[derive(Clone, Debug)]
pub struct CounterWords {
    /// Domain of the rule.
    pub domain: String,
    /// Descriptor of a request.
    pub descriptor: DescriptorWords,
}

/// Task about a counter.
#[derive(Clone, Debug)]
pub enum CounterTask {
    /// Read it.
    Read(CounterWords),
    /// Reset it, with a reason.
    Reset(CounterWords, Option<String>),
    /// Refund hits, with a reason.
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
