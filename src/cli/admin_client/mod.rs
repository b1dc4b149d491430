//! `tollgate rules`, `counters`, `ban` and `switch`: what operators ask a running tollgate, over its admin API.
//!
//! Each task has a file, which knows the API's paths and how an answer reads. `api` makes the calls, `failure` tells why
//! one was not answered as wished, `table`, `time` and `plain` write for people.

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

/// Asks, and writes the answer to `out`, or why there is none to `errors`. Answers whether it was done.
///
/// # Errors
/// When nobody reads the output.
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

/// What was answered, for people and for machines.
#[derive(Debug)]
struct Answer {
    /// Lines.
    text: String,
    json: Value,
}
