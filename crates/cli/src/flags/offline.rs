//! Arguments of the commands that need no server.

use std::path::PathBuf;

use clap::Args;
use tollgate_flags::{DescriptorArgument, descriptor};
use tollgate_rules::config::ReadingFlags;

/// Arguments of `tollgate check`.
#[derive(Args, Debug)]
pub struct CheckFlags {
    /// Directory of the rules, or a single file.
    #[arg(value_name = "DIR|FILE")]
    pub directory: PathBuf,
    /// Options for reading the files.
    #[command(flatten)]
    pub reading: ReadingFlags,
    #[cfg(feature = "regions")]
    /// Region table, for warnings of limits of `scope: global`.
    #[arg(long, value_name = "FILE")]
    pub regions: Option<PathBuf>,
}

/// Arguments of `tollgate explain`.
#[derive(Args, Debug)]
pub struct ExplainFlags {
    /// Directory of the rules, or a single file.
    #[arg(long, value_name = "DIR|FILE", default_value = "config/default")]
    pub config: PathBuf,
    /// Options for reading the files.
    #[command(flatten)]
    pub reading: ReadingFlags,
    /// Domain of the request.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Descriptors of the request, each with its entries separated by commas. A comma without a following `KEY=` is part of
    /// the value before it, and a value in double quotes is escaped as in JSON: `'forwarded="for=a, for=b"'`.
    #[arg(value_name = "KEY=VALUE,…", required = true, value_parser = descriptor)]
    pub descriptors: Vec<DescriptorArgument>,
}
