//! Arguments of `tollgate counters` and `tollgate usage`.

use std::num::NonZeroU64;

use clap::{Args, Subcommand, ValueEnum};

use super::lists::path_id;
use crate::settings::parsers::{DescriptorArgument, count, descriptor};

/// Command about counters and bans.
#[derive(Clone, Debug, Subcommand)]
pub enum CounterCommand {
    /// Reset the counter of a descriptor.
    Reset {
        #[command(flatten)]
        counter: CounterSelector,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Refund hits to the counter of a descriptor, at most to zero.
    Refund {
        #[command(flatten)]
        counter: CounterSelector,
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
pub enum BanModeArgument {
    /// Bans that deny nothing.
    Watch,
    /// Bans that deny.
    Enforce,
}

impl BanModeArgument {
    /// Name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Enforce => "enforce",
        }
    }
}

/// Counter of a descriptor.
#[derive(Args, Clone, Debug)]
pub struct CounterSelector {
    /// Domain of the rule.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Descriptor, its entries separated by commas as for `explain`.
    #[arg(value_name = "KEY=VALUE,…", value_parser = descriptor)]
    pub descriptor: DescriptorArgument,
}
