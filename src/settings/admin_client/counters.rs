//! Arguments of `tollgate counters`.

use std::num::NonZeroU64;

use clap::{Args, Subcommand};

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags, lists::literal_descriptor};
use crate::settings::{error::Problem, parsers::DescriptorArgument};

#[derive(Args, Debug)]
pub(in crate::settings) struct CountersFlags {
    #[command(subcommand)]
    subcommand: CountersSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum CountersSubcommand {
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
    /// Descriptor, its entries separated by commas. A value in double quotes, escaped as in JSON, may contain commas.
    #[arg(value_name = "KEY=VALUE,…", value_parser = literal_descriptor)]
    descriptor: DescriptorArgument,
}

/// Counter of a descriptor.
#[derive(Clone, Debug)]
pub struct CounterSelector {
    /// Domain of the rule.
    pub domain: String,
    /// Descriptor of a request.
    pub descriptor: DescriptorArgument,
}

/// Command about a counter.
#[derive(Clone, Debug)]
pub enum CounterCommand {
    /// Read it.
    Read(CounterSelector),
    /// Reset it, with a reason.
    Reset(CounterSelector, Option<String>),
    /// Refund hits, with a reason.
    Refund(CounterSelector, NonZeroU64, Option<String>),
}

impl CountersFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let words = |CounterFlags { domain, descriptor }| CounterSelector { domain, descriptor };
        let command = match self.subcommand {
            CountersSubcommand::Read { counter } => CounterCommand::Read(words(counter)),
            CountersSubcommand::Reset { counter, reason } => CounterCommand::Reset(words(counter), reason),
            CountersSubcommand::Refund { counter, hits, reason } => {
                CounterCommand::Refund(words(counter), hits, reason)
            }
        };
        self.connection.resolve(AdminCommand::Counter(command))
    }
}
