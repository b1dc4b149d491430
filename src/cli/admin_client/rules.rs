//! `tollgate rules`.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    Answer,
    api::Api,
    changes::Difference,
    failure::Failure,
    plain::line,
    versions::{Latest, Whole, edit, edited},
};
use crate::settings::{BasedOn, Compared, Rollback, RulesTask, Which};
use tollgate_control::{Files, Version};
use tollgate_rules::config::{self, Options};

pub(super) fn run(api: &Api, task: &RulesTask) -> Result<Answer, Failure> {
    match task {
        RulesTask::List(limit) => list(api, *limit),
        RulesTask::Show(version, to) => show(api, *version, to.as_deref()),
        RulesTask::Diff(Compared::Version(version), against) => between(api, *version, *against),
        RulesTask::Diff(Compared::Directory(directory), against) => {
            let json = differ(api, &files(directory)?, *against)?;
            Ok(Answer { text: api.read::<Difference>(&json)?.whole(), json })
        }
        RulesTask::Apply { directory, comment, based_on, force } => {
            let edited = edited(directory)?;
            let based_on = based_on.or(edited.map(BasedOn::Number));
            let answer = apply(api, &files(directory)?, comment, based_on, *force)?;
            let number = answer.json.pointer("/version/number").and_then(Value::as_u64);
            if let (Some(_), Some(number)) = (edited, number) {
                edit(directory, number)?;
            }
            Ok(answer)
        }
        RulesTask::Rollback(rollback) => roll_back(api, rollback),
    }
}

fn list(api: &Api, limit: usize) -> Result<Answer, Failure> {
    let json = api.get("versions", &[("limit", &limit.to_string())])?;
    Ok(Answer { text: api.read::<Latest>(&json)?.shown(), json })
}

fn show(api: &Api, version: Which, to: Option<&Path>) -> Result<Answer, Failure> {
    let json = api.get(&format!("versions/{}", name(version)), &[])?;
    let whole: Whole = api.read(&json)?;
    let text = to.map_or_else(|| Ok(whole.shown()), |directory| whole.write(directory))?;
    Ok(Answer { text, json })
}

fn between(api: &Api, version: Which, against: Option<Which>) -> Result<Answer, Failure> {
    let against = against.map(name);
    let query: Vec<_> = against.iter().map(|against| ("against", against.as_str())).collect();
    let json = api.get(&format!("versions/{}/diff", name(version)), &query)?;
    Ok(Answer { text: api.read::<Difference>(&json)?.whole(), json })
}

/// Compares the files with a version, by default the current one.
fn differ(api: &Api, files: &Files, against: Option<Which>) -> Result<Value, Failure> {
    let mut body = json!({ "files": files });
    if let (Some(Which::Number(number)), Some(body)) = (against, body.as_object_mut()) {
        body.insert("against".to_owned(), number.into());
    }
    api.post("diff", &body)
}

fn apply(
    api: &Api,
    files: &Files,
    comment: &str,
    based_on: Option<BasedOn>,
    force: bool,
) -> Result<Answer, Failure> {
    let latest: Latest = api.read(&api.get("versions", &[("limit", "1")])?)?;
    let based_on = based_on.map_or(latest.current, BasedOn::number);
    let diff = differ(api, files, None)?;
    let difference: Difference = api.read(&diff)?;
    if difference.is_none() && based_on.is_some() && based_on == latest.current {
        let text = "no difference to the current version: nothing was changed\n".to_owned();
        return Ok(Answer { text, json: json!({ "version": null, "diff": diff }) });
    }
    let body = json!({ "based_on": based_on, "files": files, "comment": comment, "force": force });
    let made = api.post("versions", &body)?;
    let text = format!("{}{}", difference.summary(), applied(api, &made)?);
    Ok(Answer { text, json: json!({ "version": made.get("version"), "diff": diff }) })
}

fn roll_back(api: &Api, rollback: &Rollback) -> Result<Answer, Failure> {
    let Rollback { to, comment, based_on, force } = rollback;
    let mut body = json!({ "comment": comment, "force": force });
    if let (Some(number), Some(body)) = (based_on, body.as_object_mut()) {
        body.insert("based_on".to_owned(), (*number).into());
    }
    let json = api.post(&format!("versions/{to}/rollback"), &body)?;
    Ok(Answer { text: applied(api, &json)?, json })
}

fn applied(api: &Api, made: &Value) -> Result<String, Failure> {
    let version: Version = api.read(made.get("version").unwrap_or(&Value::Null))?;
    let files = version.rollback_to.map(|to| format!(", with the files of version {to}"));
    let (number, author) = (version.number, line(&version.author));
    Ok(format!("version {number} is current, made by {author}{}\n", files.unwrap_or_default()))
}

fn name(version: Which) -> String {
    match version {
        Which::Current => "current".to_owned(),
        Which::Number(number) => number.to_string(),
    }
}

/// The files of a directory, validated as by `check`. The server validates them again with its own settings, which decide
/// whether files may state the same domain.
fn files(directory: &Path) -> Result<Files, Failure> {
    let options = Options { merge_domains: true, strict: false };
    let read = config::read_valid(directory, options).map_err(|error| Failure::Invalid(error.to_string()))?;
    read.ok_or_else(|| Failure::File {
        name: directory.display().to_string(),
        reason: "not found; expected a directory or a version".to_owned(),
    })
}
