//! `tollgate rules`, `counters`, `lists`, `switch`, `override`, `regions`, `top` and `events`: operate a running tollgate
//! over its admin API.
//!
//! Each subcommand has a file with its paths and the text form of its responses. `api` makes the calls, `error` has the
//! errors, and `text` formats text.

mod api;
mod bans;
mod candidates;
mod difference;
mod counters;
mod error;
mod lists;
mod recommend;
mod overrides;
mod regions;
mod rules;
mod switches;
mod text;
mod traffic;
mod versions;

use std::io::{self, Write};

use serde_json::Value;

use self::api::ApiClient;
use crate::settings::{AdminClientSettings, AdminCommand, OutputFormat};

/// Calls the API and writes the result to `out`, or the error to `errors`. Returns whether the call succeeded.
///
/// # Errors
/// If the output can't be written.
pub fn run(
    settings: &AdminClientSettings,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<bool> {
    let result = ApiClient::new(&settings.connection).and_then(|api| match &settings.command {
        AdminCommand::Rules(command) => rules::run(&api, command),
        AdminCommand::Counter(command) => counters::run(&api, command),
        AdminCommand::Usage(counter) => counters::usage(&api, counter),
        AdminCommand::List(command) => lists::run(&api, command),
        AdminCommand::Override(command) => overrides::run(&api, command),
        AdminCommand::Switch(command) => switches::run(&api, command),
        AdminCommand::Regions(command) => regions::run(&api, command),
        AdminCommand::Top(query) => traffic::top(&api, query),
        AdminCommand::Candidates(query) => candidates::show(&api, query),
        AdminCommand::Recommend(query) => recommend::show(&api, query),
        AdminCommand::Events(query) => traffic::events(&api, query),
    });
    match (result, settings.output) {
        (Ok(CommandOutput { text, .. }), OutputFormat::Text) => out.write_all(text.as_bytes())?,
        (Ok(CommandOutput { json, .. }), OutputFormat::Json) => writeln!(out, "{json}")?,
        (Err(error), OutputFormat::Text) => {
            writeln!(errors, "{error}")?;
            return Ok(false);
        }
        (Err(error), OutputFormat::Json) => {
            writeln!(errors, "{}", error.to_json())?;
            return Ok(false);
        }
    }
    out.flush()?;
    Ok(true)
}

/// Result of a call, as text and as JSON.
#[derive(Debug)]
struct CommandOutput {
    text: String,
    json: Value,
}
