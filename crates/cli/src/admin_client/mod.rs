//! `tollgate rules`, `record`, `counters`, `regions`, `top`, `candidates`, `recommend` and `events`: operate a running
//! tollgate over its admin API.
//!
//! `client` makes the calls, `output` writes text or JSON, and the other files have the commands with their paths and the text
//! form of their responses.

mod client;
mod counters;
mod output;
mod record_text;
mod records;
#[cfg(feature = "regions")]
mod regions;
mod rules;
mod traffic;

use std::io::{self, Write};

use self::client::ApiClient;
use crate::flags::{AdminClientSettings, AdminCommand};

/// Calls the API and writes the result to `out`, or the error to `errors`. Returns whether the call succeeded.
///
/// # Errors
/// If the output can't be written.
pub(crate) fn run(
    settings: &AdminClientSettings,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<bool> {
    let result = ApiClient::new(&settings.connection).and_then(|api| match &settings.command {
        AdminCommand::Rules(command) => rules::run(&api, command),
        AdminCommand::Counters(command) => counters::run(&api, command),
        AdminCommand::Usage(counter) => counters::usage(&api, counter),
        AdminCommand::Record(command) => records::run(&api, command),
        #[cfg(feature = "regions")]
        AdminCommand::Regions(command) => regions::run(&api, command),
        AdminCommand::Top(query) => traffic::top(&api, query),
        AdminCommand::Candidates(query) => traffic::candidates(&api, query),
        AdminCommand::Recommend(query) => traffic::recommend(&api, query),
        AdminCommand::Events(query) => traffic::events(&api, query),
    });
    let is_json = settings.connection.json;
    match result {
        Ok(output) => output.write(is_json, out).map(|()| true),
        Err(error) => error.output().write(is_json, errors).map(|()| false),
    }
}
