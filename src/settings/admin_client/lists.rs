//! Arguments of `tollgate lists`.

use std::time::Duration;

use clap::{Args, Subcommand};
use tollgate_control::{List, ListPair};

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags};
use crate::settings::{
    error::Problem,
    parsers::{DescriptorArgument, positive_duration},
};

#[derive(Args, Debug)]
pub(in crate::settings) struct ListsFlags {
    #[command(subcommand)]
    subcommand: ListsSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum ListsSubcommand {
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
    /// Lift an automatic entry, and exempt its key from abuse rules for some time.
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
    /// Remove an entry of either list, or lift an automatic one.
    Remove {
        /// Id of the entry, from `tollgate lists show`.
        #[arg(value_name = "ID", value_parser = path_id)]
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
        descriptor: ListDescriptorArgument,
        /// Reason.
        reason: String,
        /// Lifetime. `None`: until it is removed.
        lifetime: Option<Duration>,
        /// Whether guardrails are overridden.
        force: bool,
    },
    /// Replace an automatic entry by an exemption.
    Exempt {
        /// Its id.
        id: String,
        /// Reason.
        reason: String,
        /// Lifetime of the exemption. `None`: the server's default.
        lifetime: Option<Duration>,
    },
    /// Remove the entry with this id.
    Remove(String),
}

impl ListsFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let list = |allow| if allow { List::Allow } else { List::Deny };
        let command = match self.subcommand {
            ListsSubcommand::Show { allow } => ListCommand::Show(list(allow)),
            ListsSubcommand::Add { domain, descriptor, reason, lifetime, allow, force } => {
                ListCommand::Add { list: list(allow), domain, descriptor, reason, lifetime, force }
            }
            ListsSubcommand::Exempt { id, reason, lifetime } => ListCommand::Exempt { id, reason, lifetime },
            ListsSubcommand::Remove { id } => ListCommand::Remove(id),
        };
        self.connection.resolve(AdminCommand::List(command))
    }
}

/// Descriptor of a list entry on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDescriptorArgument(pub Vec<ListPair>);

/// Parses pairs that are separated by commas. The value of a pair is a JSON string, which is exact, or a pattern.
fn list_descriptor(text: &str) -> Result<ListDescriptorArgument, String> {
    let (mut pairs, mut rest) = (Vec::new(), text);
    loop {
        let (pair, behind) = first_pair(rest)?;
        pairs.push(pair);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok(ListDescriptorArgument(pairs)),
        }
    }
}

/// Parses pairs whose values are texts, quoted or not.
pub(super) fn literal_descriptor(text: &str) -> Result<DescriptorArgument, String> {
    let ListDescriptorArgument(pairs) = list_descriptor(text)?;
    Ok(DescriptorArgument(pairs.into_iter().map(|pair| (pair.key, pair.value)).collect()))
}

/// Parses the first pair, and returns what follows it: nothing, or a comma and more.
fn first_pair(text: &str) -> Result<(ListPair, &str), String> {
    let not_an_entry = || {
        let entry = text.split(',').next().unwrap_or_default();
        format!("`{entry}` is not an entry; expected KEY=VALUE")
    };
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty() && !key.contains(','))
        .ok_or_else(not_an_entry)?;
    if !value.starts_with('"') {
        let (value, behind) = value.split_at(value.find(',').unwrap_or(value.len()));
        return Ok((ListPair::pattern(key, value), behind));
    }
    let mut texts = serde_json::Deserializer::from_str(value).into_iter::<String>();
    let exact = texts.next().and_then(Result::ok);
    let behind = value.get(texts.byte_offset()..).unwrap_or_default();
    match exact {
        Some(exact) if behind.is_empty() || behind.starts_with(',') => {
            Ok((ListPair::exact(key, exact), behind))
        }
        _ => Err(format!("`{value}` does not begin with a JSON string; expected e.g. `\"abc\"`")),
    }
}

/// Parses the id of an entry or a ban, which becomes part of a path.
pub(super) fn path_id(text: &str) -> Result<String, String> {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match !text.is_empty() && text.bytes().all(is_printable) {
        true => Ok(text.to_owned()),
        false => Err("expected an id, as the list shows it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<ListPair>> {
        list_descriptor(text).ok().map(|ListDescriptorArgument(pairs)| pairs)
    }

    #[test]
    fn values_are_patterns_or_quoted_texts() {
        let exact = |key: &str, value: &str| ListPair::exact(key, value);
        let pattern = |key: &str, value: &str| ListPair::pattern(key, value);
        assert_eq!(
            read("k=a*,l=,m=x=y"),
            Some(vec![pattern("k", "a*"), pattern("l", ""), pattern("m", "x=y")])
        );
        assert_eq!(read(r#"k="*""#), Some(vec![exact("k", "*")]));
        assert_eq!(read(r#"k="a,b=c",l=d"#), Some(vec![exact("k", "a,b=c"), pattern("l", "d")]));
        assert_eq!(read(r#"k="\"\\\u00fc","#), None);
        assert_eq!(read(r#"k="\"\\\u00fc""#), Some(vec![exact("k", "\"\\ü")]));
        assert_eq!(read(r#"k="",l="ü""#), Some(vec![exact("k", ""), exact("l", "ü")]));
        for text in ["", "k", "=v", "k=v,", "k=v,=w", ",k=v", r#"k=""#, r#"k="a"b"#, r#"k="a" ,l=b"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn values_of_a_counter_may_be_quoted() {
        let read = literal_descriptor(r#"k="a,b=c",l=*"#).map(|DescriptorArgument(pairs)| pairs);
        assert_eq!(read, Ok(vec![("k".into(), "a,b=c".into()), ("l".into(), "*".into())]));
    }

    #[test]
    fn a_listed_descriptor_can_be_entered_as_it_is_shown() {
        for value in ["*", "a,b=c", "", "ü\n\u{1}", r"\", "\""] {
            let pairs = vec![ListPair::exact("k", value), ListPair::pattern("l", "a*")];
            let shown: Vec<String> = pairs.iter().map(ToString::to_string).collect();
            assert_eq!(read(&shown.join(",")), Some(pairs));
        }
    }
}
