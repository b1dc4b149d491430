//! `tollgate-migrate`: plans the migration of a deployment of envoyproxy/ratelimit ("the reference").
//!
//! ```text
//! env file, manifest or process ── source ──> variables ── EffectiveSettings ──┐
//! directory ── rules ──> contents and differences ─────────────────────────────┴─ plan ──> Report
//! ```
//!
//! Nothing is started or changed. The input may contain secrets; a [`Report`] has none.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

mod effective;
mod env_file;
mod manifest;
mod plan;
mod report;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod yaml;

use std::io::{self, Write};
use std::{ffi::OsString, path::PathBuf};

use clap::{Parser, ValueEnum};

pub use self::effective::Setting;
pub use self::plan::{VariableOutcome, VariableReport};
pub use self::report::{Report, Verdict};
pub use self::rules::{Difference, RulesReport};

/// Writes the report to `out`, or the reason for its absence to `errors`. `environment` has the variables of this process.
/// Returns whether the deployment works unchanged.
///
/// # Errors
/// The output is closed.
pub fn run(
    flags: &MigrateFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<bool> {
    let deployment = match source::read(flags, environment) {
        Ok(deployment) => deployment,
        Err(error) => {
            writeln!(errors, "{error}")?;
            return Ok(false);
        }
    };
    let report = Report::of(deployment, flags.config.as_deref());
    match flags.output {
        ReportFormat::Text => write!(out, "{report}")?,
        ReportFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::other)?;
            writeln!(out)?;
        }
    }
    Ok(report.verdict == Verdict::Unchanged)
}

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
