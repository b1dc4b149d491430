//! `tollgate ban`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::{OperatorSettings, Task, connection::ConnectionFlags};
use crate::{
    control::List,
    settings::{
        error::Problem,
        parsers::{DescriptorWords, descriptor, positive_duration},
    },
};

#[derive(Args, Debug)]
pub(in crate::settings) struct BanFlags {
    #[command(subcommand)]
    verb: BanVerb,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum BanVerb {
    /// List the entries that deny.
    List {
        /// Those that allow, instead.
        #[arg(long)]
        allow: bool,
    },
    /// Deny, at once, the requests that have such a descriptor.
    Add {
        /// Domain of the requests; `*` for every one.
        #[arg(long, value_name = "NAME|*")]
        domain: String,
        /// Keys and values that a descriptor has to have, joined by commas. A value may be a pattern with `*`, or a range
        /// of addresses.
        #[arg(value_name = "KEY=VALUE,…", value_parser = descriptor)]
        descriptor: DescriptorWords,
        /// Why.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// For how long. Default: until it is removed.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lasting: Option<Duration>,
        /// Allow them instead, whatever limits and bans say.
        #[arg(long)]
        allow: bool,
    },
    /// Remove an entry of either list.
    Remove {
        /// The entry, as `list` tells it.
        #[arg(value_name = "ID", value_parser = id)]
        id: String,
    },
}

/// What is asked about the lists that allow and deny.
#[derive(Clone, Debug)]
pub enum ListTask {
    /// What is in one of them.
    Show(List),
    /// To add an entry.
    Add {
        /// To which one.
        list: List,
        /// For which domain.
        domain: String,
        /// For which requests.
        descriptor: DescriptorWords,
        /// Why.
        reason: String,
        /// For how long, if not until it is removed.
        lasting: Option<Duration>,
    },
    /// To remove the entry of that name.
    Remove(String),
}

impl BanFlags {
    pub(in crate::settings) fn resolve(self) -> Result<OperatorSettings, Problem> {
        let list = |allow| if allow { List::Allow } else { List::Deny };
        let task = match self.verb {
            BanVerb::List { allow } => ListTask::Show(list(allow)),
            BanVerb::Add { domain, descriptor, reason, lasting, allow } => {
                ListTask::Add { list: list(allow), domain, descriptor, reason, lasting }
            }
            BanVerb::Remove { id } => ListTask::Remove(id),
        };
        self.connection.resolve(Task::List(task))
    }
}

/// Reads the name of an entry, which becomes a part of a path.
fn id(text: &str) -> Result<String, String> {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match !text.is_empty() && text.bytes().all(is_printable) {
        true => Ok(text.to_owned()),
        false => Err("expected an id as `tollgate ban list` tells it".to_owned()),
    }
}
