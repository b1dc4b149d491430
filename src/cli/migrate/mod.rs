//! `tollgate migrate`: plans the migration of a deployment of envoyproxy/ratelimit ("the reference").
//!
//! ```text
//! env file, manifest or process ── source ──> variables ── settings::EffectiveSettings ──┐
//! directory ── rules ──> contents and differences ───────────────────────────────────────┴─ plan ──> Report
//! ```
//!
//! Nothing is started or changed. The input may contain secrets; a [`Report`] has none.

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

pub use self::{
    report::{Report, Setting, Verdict},
    rules::{Difference, RulesReport},
};
use crate::settings::{MigrateSettings, ReportFormat};

/// Writes the report to `out`, or the reason for its absence to `errors`. Returns whether the deployment works
/// unchanged.
///
/// # Errors
/// The output is closed.
pub fn run(settings: &MigrateSettings, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    let deployment = match source::read(&settings.source) {
        Ok(deployment) => deployment,
        Err(error) => {
            writeln!(errors, "{error}")?;
            return Ok(false);
        }
    };
    let report = Report::of(deployment, settings.config.as_deref());
    match settings.format {
        ReportFormat::Text => write!(out, "{report}")?,
        ReportFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::other)?;
            writeln!(out)?;
        }
    }
    Ok(report.verdict == Verdict::Unchanged)
}
