//! `tollgate rules`.

use std::path::Path;

use serde_json::{Value, json};
use tollgate_control::{Files, Version};
use tollgate_rules::config::{self, Options};

use super::{
    CommandOutput,
    api::ApiClient,
    error::ClientError,
    text::escape_line,
    versions::{VersionFiles, VersionList, read_base_version, write_base_version},
};
use crate::{
    http::admin::api::diff::DiffResponse,
    settings::{BaseVersion, DiffSource, RulesCommand, VersionSelector},
};

pub(super) fn run(api: &ApiClient, command: &RulesCommand) -> Result<CommandOutput, ClientError> {
    match command {
        RulesCommand::List { limit } => list(api, *limit),
        RulesCommand::Show { version, to } => show(api, *version, to.as_deref()),
        RulesCommand::Diff { what: DiffSource::Version(version), against } => {
            diff_versions(api, *version, *against)
        }
        RulesCommand::Diff { what: DiffSource::Directory(directory), against } => {
            let json = diff_files(api, &files(directory)?, *against)?;
            Ok(CommandOutput { text: api.read::<DiffResponse>(&json)?.to_text(), json })
        }
        RulesCommand::Apply { directory, comment, based_on, force } => {
            let recorded = read_base_version(directory)?;
            let based_on = based_on.or(recorded.map(BaseVersion::Number));
            let output = apply(api, &files(directory)?, comment, based_on, *force)?;
            let number = output.json.pointer("/version/number").and_then(Value::as_u64);
            if let (Some(_), Some(number)) = (recorded, number) {
                write_base_version(directory, number)?;
            }
            Ok(output)
        }
        RulesCommand::Rollback { to, comment, based_on, force } => {
            let body = json!({ "based_on": based_on, "comment": comment, "force": force });
            let json = api.post(&format!("versions/{to}/rollback"), &body)?;
            Ok(CommandOutput { text: applied(api, &json)?, json })
        }
    }
}

fn list(api: &ApiClient, limit: usize) -> Result<CommandOutput, ClientError> {
    let json = api.get("versions", &[("limit", &limit.to_string())])?;
    Ok(CommandOutput { text: api.read::<VersionList>(&json)?.to_text(), json })
}

fn show(api: &ApiClient, version: VersionSelector, to: Option<&Path>) -> Result<CommandOutput, ClientError> {
    let json = api.get(&format!("versions/{}", name(version)), &[])?;
    let version_files: VersionFiles = api.read(&json)?;
    let text = to.map_or_else(|| Ok(version_files.to_text()), |directory| version_files.write(directory))?;
    Ok(CommandOutput { text, json })
}

fn diff_versions(
    api: &ApiClient,
    version: VersionSelector,
    against: Option<VersionSelector>,
) -> Result<CommandOutput, ClientError> {
    let against = against.map(name);
    let query: Vec<_> = against.iter().map(|against| ("against", against.as_str())).collect();
    let json = api.get(&format!("versions/{}/diff", name(version)), &query)?;
    Ok(CommandOutput { text: api.read::<DiffResponse>(&json)?.to_text(), json })
}

/// Compares the files with a version, by default the current one.
fn diff_files(
    api: &ApiClient,
    files: &Files,
    against: Option<VersionSelector>,
) -> Result<Value, ClientError> {
    let mut body = json!({ "files": files });
    if let (Some(VersionSelector::Number(number)), Some(body)) = (against, body.as_object_mut()) {
        body.insert("against".to_owned(), number.into());
    }
    api.post("diff", &body)
}

fn apply(
    api: &ApiClient,
    files: &Files,
    comment: &str,
    based_on: Option<BaseVersion>,
    force: bool,
) -> Result<CommandOutput, ClientError> {
    let latest: VersionList = api.read(&api.get("versions", &[("limit", "1")])?)?;
    let based_on = based_on.map_or(latest.current, BaseVersion::number);
    let diff = diff_files(api, files, None)?;
    let difference: DiffResponse = api.read(&diff)?;
    if difference.is_empty() && based_on.is_some() && based_on == latest.current {
        let text = "no difference to the current version: nothing was changed\n".to_owned();
        return Ok(CommandOutput { text, json: json!({ "version": null, "diff": diff }) });
    }
    let body = json!({ "based_on": based_on, "files": files, "comment": comment, "force": force });
    let made = api.post("versions", &body)?;
    let text = format!("{}{}", difference.summary(), applied(api, &made)?);
    Ok(CommandOutput { text, json: json!({ "version": made.get("version"), "diff": diff }) })
}

fn applied(api: &ApiClient, made: &Value) -> Result<String, ClientError> {
    let version: Version = api.read(made.get("version").unwrap_or(&Value::Null))?;
    let files = version.rollback_to.map(|to| format!(", with the files of version {to}"));
    let (number, author) = (version.number, escape_line(&version.author));
    Ok(format!("version {number} is current, made by {author}{}\n", files.unwrap_or_default()))
}

fn name(version: VersionSelector) -> String {
    match version {
        VersionSelector::Current => "current".to_owned(),
        VersionSelector::Number(number) => number.to_string(),
    }
}

/// The files of a directory, validated as by `check`. The server validates them again with its own settings, which decide
/// whether files may state the same domain.
fn files(directory: &Path) -> Result<Files, ClientError> {
    let options = Options { merge_domains: true, strict: false, allow_empty: false, ..Default::default() };
    let read =
        config::read_valid(directory, options).map_err(|error| ClientError::Invalid(error.to_string()))?;
    read.ok_or_else(|| ClientError::File {
        name: directory.display().to_string(),
        reason: "not found; expected a directory or a version".to_owned(),
    })
}
