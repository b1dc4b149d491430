//! Arguments of `tollgate ban`.

use std::time::Duration;

use clap::{Args, Subcommand};
use tollgate_control::List;

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags};
use crate::settings::{
    error::Problem,
    parsers::{DescriptorArgument, descriptor, positive_duration},
};

#[derive(Args, Debug)]
pub(in crate::settings) struct BanFlags {
    #[command(subcommand)]
    subcommand: BanSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum BanSubcommand {
    /// List the entries of the deny list.
    List {
        /// Entries of the allow list instead.
        #[arg(long)]
        allow: bool,
    },
    /// Deny requests with a matching descriptor.
    Add {
        /// Domain of the requests; `*` for all domains.
        #[arg(long, value_name = "NAME|*")]
        domain: String,
        /// Entries that a descriptor must have, separated by commas. A value may be a pattern with `*`, or an address range
        /// in CIDR notation.
        #[arg(value_name = "KEY=VALUE,…", value_parser = descriptor)]
        descriptor: DescriptorArgument,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Lifetime of the entry. Default: until it is removed.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lifetime: Option<Duration>,
        /// Entry of the allow list instead, which overrides limits and bans.
        #[arg(long)]
        allow: bool,
    },
    /// Remove an entry of either list.
    Remove {
        /// Id of the entry, from `list`.
        #[arg(value_name = "ID", value_parser = id)]
        id: String,
    },
}

/// Command about the allow and deny lists.
#[derive(Clone, Debug)]
pub enum ListCommand {
    /// Show a list.
    Show(List),
    /// Add an entry.
    Add {
        /// List.
        list: List,
        /// Domain of the requests.
        domain: String,
        /// Entries of matching descriptors.
        descriptor: DescriptorArgument,
        /// Reason.
        reason: String,
        /// Lifetime. `None`: until it is removed.
        lifetime: Option<Duration>,
    },
    /// Remove the entry with this id.
    Remove(String),
}

impl BanFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let list = |allow| if allow { List::Allow } else { List::Deny };
        let command = match self.subcommand {
            BanSubcommand::List { allow } => ListCommand::Show(list(allow)),
            BanSubcommand::Add { domain, descriptor, reason, lifetime, allow } => {
                ListCommand::Add { list: list(allow), domain, descriptor, reason, lifetime }
            }
            BanSubcommand::Remove { id } => ListCommand::Remove(id),
        };
        self.connection.resolve(AdminCommand::List(command))
    }
}

/// Parses the id of an entry, which becomes part of a path.
fn id(text: &str) -> Result<String, String> {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match !text.is_empty() && text.bytes().all(is_printable) {
        true => Ok(text.to_owned()),
        false => Err("expected an id from `tollgate ban list`".to_owned()),
    }
}
