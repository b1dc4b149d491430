//! Arguments of `tollgate counters` and `tollgate usage`.

use std::num::NonZeroU64;

use clap::{Args, Subcommand, ValueEnum};
use tollgate_control::ListedBanMode;

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags, lists::path_id};
use crate::settings::{
    error::Problem,
    parsers::{DescriptorArgument, count, descriptor},
};

#[derive(Args, Debug)]
pub(in crate::settings) struct CountersFlags {
    #[command(subcommand)]
    subcommand: CountersSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Args, Debug)]
pub(in crate::settings) struct UsageFlags {
    #[command(flatten)]
    counter: CounterFlags,
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
        #[arg(long, value_name = "COUNT", value_parser = count::<NonZeroU64>)]
        hits: NonZeroU64,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List active bans, which rules with `ban` impose.
    Bans {
        /// Domain of the rules. Default: all domains.
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
        /// Effect of the bans. Default: both.
        #[arg(long, value_enum)]
        mode: Option<BanModeArgument>,
    },
    /// Lift a ban: requests are limited by the rule again.
    Lift {
        /// Id of the ban, from `bans`.
        #[arg(value_name = "ID", value_parser = path_id)]
        id: String,
        /// Resets the level too: the next ban has the first duration.
        #[arg(long)]
        forgive: bool,
    },
}

/// Effect of bans on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BanModeArgument {
    /// Bans that deny nothing.
    Watch,
    /// Bans that deny.
    Enforce,
}

#[derive(Args, Debug)]
struct CounterFlags {
    /// Domain of the rule.
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// Descriptor, its entries separated by commas as for `explain`.
    #[arg(value_name = "KEY=VALUE,…", value_parser = descriptor)]
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
    /// Read the use of its limits.
    Usage(CounterSelector),
    /// Reset it, with a reason.
    Reset(CounterSelector, Option<String>),
    /// Refund hits, with a reason.
    Refund(CounterSelector, NonZeroU64, Option<String>),
    /// List the active bans of a domain, or of all, with an effect, or with any.
    Bans(Option<String>, Option<ListedBanMode>),
    /// Lift the ban with this id.
    Lift {
        /// Id of the ban.
        id: String,
        /// Whether the level is taken back.
        forgive: bool,
    },
}

impl CounterFlags {
    fn words(self) -> CounterSelector {
        let Self { domain, descriptor } = self;
        CounterSelector { domain, descriptor }
    }
}

impl UsageFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let command = CounterCommand::Usage(self.counter.words());
        self.connection.resolve(AdminCommand::Counter(command))
    }
}

impl CountersFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let words = CounterFlags::words;
        let command = match self.subcommand {
            CountersSubcommand::Read { counter } => CounterCommand::Read(words(counter)),
            CountersSubcommand::Reset { counter, reason } => CounterCommand::Reset(words(counter), reason),
            CountersSubcommand::Refund { counter, hits, reason } => {
                CounterCommand::Refund(words(counter), hits, reason)
            }
            CountersSubcommand::Bans { domain, mode } => {
                let effect = mode.map(|mode| match mode {
                    BanModeArgument::Watch => ListedBanMode::Watch,
                    BanModeArgument::Enforce => ListedBanMode::Enforce,
                });
                CounterCommand::Bans(domain, effect)
            }
            CountersSubcommand::Lift { id, forgive } => CounterCommand::Lift { id, forgive },
        };
        self.connection.resolve(AdminCommand::Counter(command))
    }
}
