//! Arguments of `tollgate regions`.

use std::path::PathBuf;

use clap::Subcommand;

/// Command about the regions.
#[derive(Clone, Debug, Subcommand)]
pub enum RegionsCommand {
    /// List the regions with their shares, and whether the instance that answers reaches them.
    List,
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
