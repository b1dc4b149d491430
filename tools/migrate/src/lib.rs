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
mod flags;
mod manifest;
mod plan;
mod report;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
mod yaml;

use std::{
    ffi::OsString,
    io::{self, Write},
};

pub use self::{
    flags::{MigrateFlags, ReportFormat},
    report::{Report, Setting, Verdict},
    rules::{Difference, RulesReport},
    verdict::{VariableOutcome, VariableReport},
};

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
