//! Arguments of `tollgate lists`.

use std::time::Duration;

use clap::Subcommand;
use tollgate_control::{ListPair, parse_pairs};

use crate::settings::parsers::positive_duration;

/// Command about the allow and deny lists.
#[derive(Clone, Debug, Subcommand)]
pub enum ListCommand {
    /// List the entries of the deny list, automatic ones too.
    #[command(alias = "list")]
    Show {
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
        /// in CIDR notation. A value in double quotes, escaped as in JSON, is compared character by character:
        /// `'api_key="a*,b"'`.
        #[arg(value_name = "KEY=VALUE,…", value_parser = list_descriptor)]
        descriptor: ListDescriptorArgument,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Lifetime of the entry. Default: until it is removed.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lifetime: Option<Duration>,
        /// Entry of the allow list instead, which overrides limits and bans.
        #[arg(long)]
        allow: bool,
        /// Skips the guardrails: accepts an entry that denies more than 5 % of the current requests, or all values of
        /// its keys.
        #[arg(long)]
        force: bool,
    },
    /// Lift an automatic entry with its ban, and exempt the client from another entry for some time.
    Exempt {
        /// Id of the entry, from `tollgate lists show`.
        #[arg(value_name = "ID", value_parser = path_id)]
        id: String,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Lifetime of the exemption. Default: 7 days.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lifetime: Option<Duration>,
    },
    /// Remove an entry of either list, or lift an automatic one with its ban.
    Remove {
        /// Id of the entry, from `tollgate lists show`.
        #[arg(value_name = "ID", value_parser = path_id)]
        id: String,
    },
}

/// Descriptor of a list entry on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDescriptorArgument(pub Vec<ListPair>);

fn list_descriptor(text: &str) -> Result<ListDescriptorArgument, String> {
    parse_pairs(text).map(ListDescriptorArgument)
}

/// Parses the id of an entry or a ban, which becomes part of a path.
pub(super) fn path_id(text: &str) -> Result<String, String> {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match !text.is_empty() && text.bytes().all(is_printable) {
        true => Ok(text.to_owned()),
        false => Err("expected an id, as the list shows it".to_owned()),
    }
}
