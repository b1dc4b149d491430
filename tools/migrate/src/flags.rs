//! Command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Plans the migration from envoyproxy/ratelimit to tollgate.
///
/// Reports the equivalent settings, the differences, and the steps, from its variables and rules. Exit code 0: works
/// unchanged; 1: needs changes. Starts and changes nothing.
#[derive(Debug, Parser)]
#[command(name = "tollgate-migrate", version)]
pub struct MigrateFlags {
    /// File with the variables of the deployment: lines KEY=VALUE, as in `printenv`, `docker run --env-file` and `kubectl
    /// set env --list`, or the output of `docker inspect`. Default: the variables of this process.
    #[arg(long, value_name = "FILE", conflicts_with = "manifest")]
    pub env_file: Option<PathBuf>,
    /// Kubernetes manifest or compose file with the variables of the deployment.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Directory of its rules. Default: the directory that its variables name.
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// Format of the report: text, or one JSON object.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ReportFormat::Text)]
    pub output: ReportFormat,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Plain text.
    Text,
    /// One JSON object.
    Json,
}
