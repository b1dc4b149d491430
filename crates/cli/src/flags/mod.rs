//! Arguments of the commands that call the admin API: `rules`, `record`, `counters`, `usage`, `regions`, `top`,
//! `candidates`, `recommend` and `events`.

mod changes;
mod offline;

use std::{num::NonZeroU64, path::PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use tollgate_core::ban::BanMode;
use tollgate_flags::{DescriptorArgument, KeyPair, count, descriptor, key_pair, named, web_url, whole};

pub use self::changes::{
    BaseVersion, ChangeFlags, DiffSource, EntryFlags, Lifetime, LimitArgument, PutFlags, RampFlags,
    RecordCommand, RecordQuery, RuleSelector, RulesCommand, VersionSelector,
};
pub use self::offline::{CheckFlags, ExplainFlags};

/// Settings of a call to the admin API.
#[derive(Clone, Debug)]
pub struct AdminClientSettings {
    /// Connection to the admin port.
    pub connection: ConnectionSettings,
    /// Command.
    pub command: AdminCommand,
}

impl FromArgMatches for AdminClientSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of_command = matches.subcommand().map_or(matches, |(_, matches)| matches);
        let connection = ConnectionSettings::from_arg_matches(of_command)?;
        Ok(Self { connection, command: AdminCommand::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The commands, each with the flags of the connection.
impl Subcommand for AdminClientSettings {
    fn augment_subcommands(program: Command) -> Command {
        AdminCommand::augment_subcommands(program).mut_subcommands(|command| {
            if !AdminCommand::has_subcommand(command.get_name()) {
                return command;
            }
            // The connection has a description of its own.
            let about = command.get_about().cloned().unwrap_or_default();
            ConnectionSettings::augment_args(command).about(about)
        })
    }

    fn augment_subcommands_for_update(program: Command) -> Command {
        Self::augment_subcommands(program)
    }

    fn has_subcommand(name: &str) -> bool {
        AdminCommand::has_subcommand(name)
    }
}

/// Command of a call to the admin API.
#[derive(Clone, Debug, Subcommand)]
pub enum AdminCommand {
    /// List, compare and change the rule versions of a running server.
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Reset and refund counters of a running server, and list and lift their bans.
    #[command(subcommand)]
    Counters(CounterCommand),
    /// Show what a key has used of its limit on a running server, and when it resets. Charges nothing.
    Usage(CounterSelector),
    /// Deny or allow requests, switch rules and override limits on a running server, with or without an end. For bans of
    /// rules see `counters bans`.
    #[command(subcommand)]
    Record(RecordCommand),
    #[cfg(feature = "regions")]
    /// Show the regions of a running server, and drop one from a region table.
    #[command(subcommand)]
    Regions(RegionsCommand),
    /// Show the keys with the most hits and the most denied hits of the last minute, in all instances.
    Top(TopQuery),
    /// Compare rules with their candidates: hits that only one of both denied, in all instances.
    Candidates(RuleQuery),
    /// Recommend limits for the rules of a running server, from the demand of their keys.
    Recommend(RuleQuery),
    /// Show the events of all instances, newest first.
    Events(EventsQuery),
}

/// Connection to the admin API. `Debug` shows no secret: these are in files.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionSettings {
    /// URL of the admin port, http or https. [env: TOLLGATE_ADMIN_URL]
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:6070", value_parser = url)]
    pub admin_url: String,
    /// File with the token of the caller.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Name of the caller in the audit log, for a port without tokens.
    #[arg(long, global = true, value_name = "NAME", value_parser = author)]
    pub author: Option<String>,
    /// PEM file of the CAs for the certificate of the port. Default: the Mozilla root CAs.
    #[arg(long, global = true, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM files of the client certificate and of its key.
    #[arg(long, global = true, value_name = "CERT,KEY", value_parser = key_pair)]
    pub cert: Option<KeyPair>,
    /// Response of the API as one line of JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// Command about counters and bans.
#[derive(Clone, Debug, Subcommand)]
pub enum CounterCommand {
    /// Reset the counter of a descriptor.
    Reset {
        #[command(flatten)]
        counter: CounterSelector,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Refund hits to the counter of a descriptor, at most to zero.
    Refund {
        #[command(flatten)]
        counter: CounterSelector,
        /// Number of hits.
        #[arg(long, value_name = "COUNT", value_parser = count::<NonZeroU64>)]
        hits: NonZeroU64,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List active bans, which rules with `ban` impose.
    Bans {
        /// Domain of the rules. Default: all domains.
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
        /// Effect of the bans; a ban of `watch` denies nothing. Default: both.
        #[arg(long, value_parser = named(BanMode::ALL, BanMode::name))]
        mode: Option<BanMode>,
    },
    /// Lift a ban: requests are limited by the rule again.
    Lift {
        /// Id of the ban, from `bans`.
        #[arg(value_name = "ID", value_parser = path_id)]
        id: String,
        /// Resets the level too: the next ban has the first duration.
        #[arg(long)]
        forgive: bool,
    },
}

/// Counter of a descriptor.
#[derive(Args, Clone, Debug)]
pub struct CounterSelector {
    /// Domain of the rule.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Descriptor, its entries separated by commas as for `explain`.
    #[arg(value_name = "KEY=VALUE,…", value_parser = descriptor)]
    pub descriptor: DescriptorArgument,
}

/// Command about the regions.
#[cfg(feature = "regions")]
#[derive(Clone, Debug, Subcommand)]
pub enum RegionsCommand {
    /// List the regions with their shares, and whether the instance that answers reaches them.
    List,
    /// Mark a region as lost, so that the others use its share: print the region table with the region as `lost: true`
    /// and the next generation.
    Drop {
        /// Name of the region.
        #[arg(value_name = "NAME")]
        name: String,
        /// Region table.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Replace the file.
        #[arg(long)]
        write: bool,
        /// Skips the guardrails: accepts a region that answers, and an instance that cannot be reached.
        #[arg(long)]
        force: bool,
    },
}

/// Query of top talkers.
#[derive(Args, Clone, Debug)]
pub struct TopQuery {
    /// Domain. Default: all.
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,
    /// Maximum number of keys of each table.
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = |text: &str| whole::<u16>(text, 1..=100))]
    pub limit: u16,
    /// Only the instance that answers.
    #[arg(long)]
    pub instance: bool,
}

/// Query of events.
#[derive(Args, Clone, Debug)]
pub struct EventsQuery {
    /// Maximum number of events.
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = |text: &str| whole::<u16>(text, 1..=1000))]
    pub limit: u16,
}

/// Query about rules.
#[derive(Args, Clone, Debug)]
pub struct RuleQuery {
    /// Domain. Default: all.
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,
    /// Path of one rule, as in `/rlconfig` and metrics. Default: all.
    #[arg(long, value_name = "PATH")]
    pub rule: Option<String>,
}

/// Parses the URL of the admin port: a scheme, a host and an optional port.
fn url(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected a URL such as http://127.0.0.1:6070, without a path";
    let url = web_url(text, EXPECTED)?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    match (url.scheme_str(), url.authority()) {
        (Some(scheme), Some(authority)) if is_bare => Ok(format!("{scheme}://{authority}")),
        _ => Err(EXPECTED.to_owned()),
    }
}

/// Parses a name that is valid in a header.
fn author(text: &str) -> Result<String, String> {
    let is_good = !text.trim().is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_good { Ok(text.to_owned()) } else { Err("expected a name in ASCII".to_owned()) }
}

/// Parses the id of a ban, which becomes part of a path.
fn path_id(text: &str) -> Result<String, String> {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match !text.is_empty() && text.bytes().all(is_printable) {
        true => Ok(text.to_owned()),
        false => Err("expected an id, as the list shows it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host() {
        assert_eq!(url("http://[::1]:6070/").as_deref(), Ok("http://[::1]:6070"));
        assert!(url("https://admin.example").is_ok());
        for text in ["", "localhost:6070", "ftp://a", "http://a/b", "http://a/?b", "http://me:secret@a"] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
