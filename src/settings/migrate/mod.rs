//! Arguments of `tollgate migrate`, and the settings that another process's environment resolves to.

mod effective;
mod verdict;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

pub use self::{
    effective::{EffectiveFlag, EffectiveSettings, MASK},
    verdict::{VariableOutcome, VariableReport},
};

#[derive(Args, Debug)]
pub(super) struct MigrateFlags {
    /// File with the variables of the deployment: lines KEY=VALUE, as in `printenv`, `docker run --env-file` and `kubectl
    /// set env --list`, or the output of `docker inspect`. Default: the variables of this process.
    #[arg(long, value_name = "FILE", conflicts_with = "manifest")]
    env_file: Option<PathBuf>,
    /// Kubernetes manifest or compose file with the variables of the deployment.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Directory of its rules. Default: the directory that its variables name.
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Format of the report: text, or one JSON object.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ReportFormat::Text)]
    output: ReportFormat,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Plain text.
    Text,
    /// One JSON object.
    Json,
}

/// Settings of `tollgate migrate`.
#[derive(Clone, Debug)]
pub struct MigrateSettings {
    /// Source of the deployment's variables.
    pub source: EnvironmentSource,
    /// Directory of its rules, if not the one that the variables name.
    pub config: Option<PathBuf>,
    /// Format of the report.
    pub format: ReportFormat,
}

/// Source of a deployment's variables.
#[derive(Clone)]
pub enum EnvironmentSource {
    /// Environment of this process.
    Process(Vec<(OsString, OsString)>),
    /// File of lines, or JSON of `docker inspect`.
    File(PathBuf),
    /// Kubernetes manifest or compose file.
    Manifest(PathBuf),
}

/// Omits the values of variables, which may be secrets.
impl std::fmt::Debug for EnvironmentSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(_) => f.write_str("Process"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Manifest(path) => f.debug_tuple("Manifest").field(path).finish(),
        }
    }
}

impl MigrateFlags {
    pub(super) fn resolve(self, environment: Vec<(OsString, OsString)>) -> MigrateSettings {
        let source = match (self.env_file, self.manifest) {
            (Some(file), _) => EnvironmentSource::File(file),
            (None, Some(file)) => EnvironmentSource::Manifest(file),
            (None, None) => EnvironmentSource::Process(environment),
        };
        MigrateSettings { source, config: self.config, format: self.output }
    }
}
