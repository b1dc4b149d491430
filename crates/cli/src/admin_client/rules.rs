//! `tollgate rules`: versions of the rules, and their files in a directory.

use std::path::{Component, Path};
use std::{fmt::Display, fs, io};

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_admin::api::diff::{Change, DiffResponse, RuleChange};
use tollgate_admin::api::versions::RuleFiles;
use tollgate_control::{Files, Version};
use tollgate_rules::config::{self, Options};
use tollgate_runtime::bounded_file;

use super::client::{ApiClient, ClientError};
use super::output::{Column, CommandOutput, escape, escape_line, table, utc};
use crate::flags::{BaseVersion, DiffSource, RulesCommand, VersionSelector};

/// File with the number of the version that the other files were made from. Hidden, so that it is not loaded as rules.
const VERSION_FILE: &str = ".tollgate-version";

/// The latest versions, and the number of the current one.
#[derive(Debug, Deserialize)]
struct VersionList {
    current: Option<u64>,
    versions: Vec<Version>,
}

pub(super) fn run(api: &ApiClient, command: &RulesCommand) -> Result<CommandOutput, ClientError> {
    match command {
        RulesCommand::List { limit } => {
            api.output(api.get("versions", &[("limit", Some(&limit.to_string()))])?, VersionList::to_text)
        }
        RulesCommand::Show { version, to } => show(api, *version, to.as_deref()),
        RulesCommand::Diff { what: DiffSource::Version(version), against } => {
            let (path, against) = (format!("versions/{}/diff", name(*version)), against.map(name));
            api.output(api.get(&path, &[("against", against.as_deref())])?, difference_text)
        }
        RulesCommand::Diff { what: DiffSource::Directory(directory), against } => {
            api.output(diff_files(api, &files(directory)?, *against)?, difference_text)
        }
        RulesCommand::Apply { directory, comment, based_on, force } => {
            let recorded = read_base_version(directory)?;
            let based_on = based_on.or(recorded.map(Some));
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

fn show(api: &ApiClient, version: VersionSelector, to: Option<&Path>) -> Result<CommandOutput, ClientError> {
    let json = api.get(&format!("versions/{}", name(version)), &[])?;
    let version_files: RuleFiles = api.read(&json)?;
    let text = to
        .map_or_else(|| Ok(files_text(&version_files)), |directory| write_files(&version_files, directory))?;
    Ok(CommandOutput { text, json })
}

/// Compares the files with a version, by default the current one.
fn diff_files(
    api: &ApiClient,
    files: &Files,
    against: Option<VersionSelector>,
) -> Result<Value, ClientError> {
    let against = match against {
        Some(VersionSelector::Number(number)) => Some(number),
        Some(VersionSelector::Current) | None => None,
    };
    api.post("diff", &json!({ "files": files, "against": against }))
}

fn apply(
    api: &ApiClient,
    files: &Files,
    comment: &str,
    based_on: Option<BaseVersion>,
    force: bool,
) -> Result<CommandOutput, ClientError> {
    let latest: VersionList = api.read(&api.get("versions", &[("limit", Some("1"))])?)?;
    let based_on = based_on.unwrap_or(latest.current);
    let diff = diff_files(api, files, None)?;
    let difference: DiffResponse = api.read(&diff)?;
    if difference.files.is_empty() && based_on.is_some() && based_on == latest.current {
        let text = "no difference to the current version: nothing was changed\n".to_owned();
        return Ok(CommandOutput { text, json: json!({ "version": null, "diff": diff }) });
    }
    let body = json!({ "based_on": based_on, "files": files, "comment": comment, "force": force });
    let made = api.post("versions", &body)?;
    let text = format!("{}{}", difference_summary(&difference), applied(api, &made)?);
    Ok(CommandOutput { text, json: json!({ "version": made.get("version"), "diff": diff }) })
}

fn applied(api: &ApiClient, made: &Value) -> Result<String, ClientError> {
    let version: Version = api.field(made, "version")?;
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
    let options = Options { merge_domains: true, ..Default::default() };
    let files = match tollgate_directory::read(directory) {
        Err(error) if error.is_not_found() => {
            let missing = "not found; expected a directory or a version";
            return Err(ClientError::of_file(&directory.display().to_string(), missing));
        }
        read => read.map_err(|error| ClientError::Invalid(error.to_string()))?,
    };
    config::compile_files(files.clone(), options).map_err(|error| ClientError::Invalid(error.to_string()))?;
    Ok(files.texts())
}

impl VersionList {
    fn to_text(&self) -> String {
        if self.versions.is_empty() {
            return "there is no version yet\n".to_owned();
        }
        let mark = |version: &Version| if Some(version.number) == self.current { "current" } else { "" };
        let rows: Vec<_> = self.versions.iter().map(|version| (version, mark(version))).collect();
        let columns: [Column<(&Version, &str)>; 5] = [
            ("VERSION", |(version, _)| version.number.to_string()),
            ("", |(_, mark)| (*mark).to_owned()),
            ("CREATED", |(version, _)| utc(version.created_at_ms)),
            ("AUTHOR", |(version, _)| version.author.clone()),
            ("COMMENT", |(version, _)| match (version.rollback_to, version.comment.trim()) {
                (Some(to), "") => format!("back to {to}"),
                (Some(to), comment) => format!("back to {to}: {comment}"),
                (None, comment) => comment.to_owned(),
            }),
        ];
        table(&rows, &columns)
    }
}

fn files_text(files: &RuleFiles) -> String {
    let texts = files.files.iter().map(|(name, text)| {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        format!("# {}\n{}{end}", escape_line(name), escape(text))
    });
    std::iter::once(files_head(files)).chain(texts).collect()
}

fn files_head(files: &RuleFiles) -> String {
    match &files.version {
        None => "# the rules come from a directory\n".to_owned(),
        Some(version) => format!(
            "# version {}, made {} by {}: {}\n",
            version.number,
            utc(version.created_at_ms),
            escape_line(&version.author),
            escape_line(&version.comment)
        ),
    }
}

/// Writes the files into a new or empty directory.
fn write_files(files: &RuleFiles, directory: &Path) -> Result<String, ClientError> {
    let fails = |path: &Path| {
        let name = path.display().to_string();
        move |error: io::Error| ClientError::of_file(&name, error)
    };
    fs::create_dir_all(directory).map_err(fails(directory))?;
    if fs::read_dir(directory).map_err(fails(directory))?.next().is_some() {
        return Err(fails(directory)(io::Error::other(
            "expected an empty directory, so that nothing is mixed up",
        )));
    }
    for (name, text) in &files.files {
        // Names come from the server and are not trusted.
        if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(fails(directory)(io::Error::other(format!("the name {name:?} leads out of it"))));
        }
        let file = directory.join(name);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(fails(parent))?;
        }
        fs::write(&file, text).map_err(fails(&file))?;
    }
    if let Some(version) = &files.version {
        write_base_version(directory, version.number)?;
    }
    Ok(format!("{}files written: {}\n", files_head(files), files.files.len()))
}

/// The version that a directory's files were made from, if it is recorded.
fn read_base_version(directory: &Path) -> Result<Option<u64>, ClientError> {
    let path = directory.join(VERSION_FILE);
    let fails = |reason: &dyn Display| ClientError::of_file(&path.display().to_string(), reason);
    match bounded_file::read_text(&path, bounded_file::MAX_BYTES) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(fails(&"expected the number of a version")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fails(&error)),
    }
}

/// Records in a directory the version of its files.
fn write_base_version(directory: &Path, number: u64) -> Result<(), ClientError> {
    let path = directory.join(VERSION_FILE);
    let written = fs::write(&path, format!("{number}\n"));
    written.map_err(|error| ClientError::of_file(&path.display().to_string(), error))
}

const fn sign(change: Change) -> char {
    match change {
        Change::Added => '+',
        Change::Removed => '-',
        Change::Changed => '~',
    }
}

/// Patches of the files, and the changed rules.
fn difference_text(difference: &DiffResponse) -> String {
    if difference.files.is_empty() {
        return "no difference\n".to_owned();
    }
    let patches: String = difference.files.iter().map(|file| with_line_feed(escape(&file.patch))).collect();
    format!("{patches}\n{}", difference_summary(difference))
}

/// Names of the changed files and rules.
fn difference_summary(difference: &DiffResponse) -> String {
    let files =
        difference.files.iter().map(|file| format!("{} {}\n", sign(file.change), escape_line(&file.name)));
    let rules = difference.rules.iter().map(rule_text);
    let problem =
        difference.problem.iter().map(|report| format!("the rules are not compared:\n{}", escape(report)));
    files.chain(rules).chain(problem.map(with_line_feed)).collect()
}

fn rule_text(rule: &RuleChange) -> String {
    let limit = |text: &Option<String>| escape_line(text.as_deref().unwrap_or("no limit"));
    let limits = match rule.change {
        Change::Added => limit(&rule.after),
        Change::Removed => limit(&rule.before),
        Change::Changed => format!("{} -> {}", limit(&rule.before), limit(&rule.after)),
    };
    let (domain, path) = (escape_line(&rule.domain), escape_line(&rule.rule));
    format!("{} rule {domain}.{path}: {limits}\n", sign(rule.change))
}

/// The text with a final line feed.
fn with_line_feed(text: String) -> String {
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_fixtures::temporary_file;

    fn version_files(name: &str) -> RuleFiles {
        RuleFiles { version: None, files: Files::from([(name.to_owned(), "domain: d\n".to_owned())]) }
    }

    #[test]
    fn files_are_written_only_below_an_empty_directory() {
        let (_directory, inner) = temporary_file("rules");
        for name in ["../out.yaml", "/tmp/out.yaml", "a/../../out.yaml", ""] {
            assert!(write_files(&version_files(name), &inner).is_err(), "{name}");
        }
        write_files(&version_files("teams/search.yaml"), &inner).expect("written");
        assert_eq!(fs::read_to_string(inner.join("teams/search.yaml")).expect("is there"), "domain: d\n");
        assert!(write_files(&version_files("other.yaml"), &inner).is_err(), "it is not empty");
        assert!(!inner.with_file_name("out.yaml").exists());
    }

    #[test]
    fn a_difference_is_printed_as_patches_and_then_rules() {
        let response = json!({
            "from": 1, "to": null, "problem": null,
            "files": [{"name": "edge.yaml", "change": "changed", "patch": "-a\n+b"}],
            "rules": [
                {"domain": "edge", "rule": "path", "change": "changed", "before": "5 per minute", "after": "6 per minute"},
                {"domain": "edge", "rule": "user", "change": "removed", "before": "unlimited", "after": null},
            ],
        });
        let difference: DiffResponse = serde_json::from_value(response).expect("a difference");
        let expected = "-a\n+b\n\n~ edge.yaml\n~ rule edge.path: 5 per minute -> 6 per minute\n- rule edge.user: unlimited\n";
        assert_eq!(difference_text(&difference), expected);
        let none: DiffResponse =
            serde_json::from_value(json!({"files": [], "rules": []})).expect("a difference");
        assert_eq!(difference_text(&none), "no difference\n");
    }
}
