//! What `tollgate migrate` is told.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

/// Reads how envoyproxy/ratelimit is run, and tells how tollgate is run the same way.
#[derive(Args, Debug)]
pub(super) struct MigrateFlags {
    /// File with the variables of the deployment, one KEY=VALUE a line, as `printenv`, `docker run --env-file` and `kubectl
    /// set env --list` have them; or what `docker inspect` prints. Default: the variables of this process.
    #[arg(long, value_name = "FILE", conflicts_with = "manifest")]
    env_file: Option<PathBuf>,
    /// Manifest of Kubernetes, or file of compose, with the variables of the deployment.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Directory with its rules. Default: where its variables say.
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// How the report is written: for people, or as one JSON object.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ReportFormat::Text)]
    output: ReportFormat,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// What `tollgate migrate` looks at, and how it tells.
#[derive(Clone, Debug)]
pub struct MigrateSettings {
    /// Where the variables of the deployment are.
    pub source: EnvironmentSource,
    /// The directory with its rules, where it is not the one that the variables name.
    pub config: Option<PathBuf>,
    /// How the report is written.
    pub format: ReportFormat,
}

/// Where the variables of a deployment are.
#[derive(Clone)]
pub enum EnvironmentSource {
    /// In this process.
    Process(Vec<(OsString, OsString)>),
    /// In a file of lines.
    File(PathBuf),
    /// In a manifest.
    Manifest(PathBuf),
}

/// Variables may be secrets.
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
