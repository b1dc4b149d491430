//! `tollgate rules`, `counters`, `ban` and `switch`: operate a running tollgate over its admin API.
//!
//! Each subcommand has a file with its paths and the text form of its responses. `api` makes the calls, `failure` has the
//! errors, and `table`, `time` and `plain` format text.

mod api;
mod changes;
mod counters;
mod failure;
mod lists;
mod plain;
mod rules;
mod switches;
mod table;
mod time;
mod versions;

use std::io::{self, Write};

use serde_json::Value;

use self::api::Api;
use crate::settings::{OperatorSettings, Output, Task};

/// Calls the API and writes the result to `out`, or the error to `errors`. Returns whether the call succeeded.
///
/// # Errors
/// If the output can't be written.
pub fn run(settings: &OperatorSettings, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    let answer = Api::new(&settings.connection).and_then(|api| match &settings.task {
        Task::Rules(task) => rules::run(&api, task),
        Task::Counter(task) => counters::run(&api, task),
        Task::List(task) => lists::run(&api, task),
        Task::Switch(task) => switches::run(&api, task),
    });
    match (answer, settings.output) {
        (Ok(Answer { text, .. }), Output::Text) => out.write_all(text.as_bytes())?,
        (Ok(Answer { json, .. }), Output::Json) => writeln!(out, "{json}")?,
        (Err(failure), Output::Text) => {
            writeln!(errors, "{failure}")?;
            return Ok(false);
        }
        (Err(failure), Output::Json) => {
            writeln!(errors, "{}", failure.json())?;
            return Ok(false);
        }
    }
    out.flush()?;
    Ok(true)
}

/// Result of a call, as text and as JSON.
#[derive(Debug)]
struct Answer {
    text: String,
    json: Value,
}
