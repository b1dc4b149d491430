//! Arguments of `tollgate regions`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags};
use crate::settings::{error::Problem, parsers::count};

#[derive(Args, Debug)]
pub(in crate::settings) struct RegionsFlags {
    #[command(subcommand)]
    subcommand: RegionsSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum RegionsSubcommand {
    /// List the regions with their shares, and whether the instance that answers reaches them.
    List,
    /// Show what each region has of a limit with `scope: global`, and why it may be less.
    Explain {
        /// Hits of the limit, its `requests_per_unit`.
        #[arg(long, value_name = "HITS", value_parser = count::<u32>)]
        limit: u32,
    },
    /// Mark a region as lost, so that the others use its share: print the region table with the region as `lost: true`
    /// and the next generation.
    Drop {
        /// Name of the region.
        #[arg(value_name = "NAME")]
        name: String,
        /// Region table.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Replace the file.
        #[arg(long)]
        write: bool,
        /// Skips the guardrails: accepts a region that answers, and an instance that cannot be reached.
        #[arg(long)]
        force: bool,
    },
}

/// Command about the regions.
#[derive(Clone, Debug)]
pub enum RegionsCommand {
    /// List the regions.
    List,
    /// Show the shares of a limit with this number of hits.
    Explain(u32),
    /// Mark a region in the table as lost.
    Drop {
        /// Name of the region.
        name: String,
        /// Region table.
        file: PathBuf,
        /// Whether the file is replaced.
        write: bool,
        /// Whether guardrails are overridden.
        force: bool,
    },
}

impl RegionsFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let command = match self.subcommand {
            RegionsSubcommand::List => RegionsCommand::List,
            RegionsSubcommand::Explain { limit } => RegionsCommand::Explain(limit),
            RegionsSubcommand::Drop { name, file, write, force } => {
                RegionsCommand::Drop { name, file, write, force }
            }
        };
        self.connection.resolve(AdminCommand::Regions(command))
    }
}
