//! Arguments of the commands that change what a running server enforces: `rules` and `record`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use serde_json::Value;
use tollgate_control::{ListPair, RecordKey, RecordKind, SwitchMode, parse_pairs};
use tollgate_flags::{DescriptorArgument, count, descriptor, named, number, percentage, positive_duration};

use super::RuleQuery;

/// Command about the rule versions.
#[derive(Clone, Debug, Subcommand)]
pub enum RulesCommand {
    /// List the versions, newest first.
    List {
        /// Maximum number of versions.
        #[arg(long, value_name = "COUNT", default_value = "20", value_parser = count::<usize>)]
        limit: usize,
    },
    /// Show the files of a version.
    Show {
        /// Version: a number, or `current`.
        #[arg(value_name = "VERSION", default_value = "current", value_parser = which)]
        version: VersionSelector,
        /// Directory, empty or new, to write the files to instead of showing them.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Show the changes of a version, or the changes that a directory would make.
    Diff {
        /// Version, or directory (`./12` for one that is named like a version).
        #[arg(value_name = "VERSION|DIR", value_parser = OsStringValueParser::new().map(diff_source))]
        what: DiffSource,
        /// Version to compare with. Default: the base of the version; for a directory, the current version.
        #[arg(long, value_name = "VERSION", value_parser = which)]
        against: Option<VersionSelector>,
    },
    /// Activate the files of a directory as a new version.
    Apply {
        /// Directory of the rules.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Comment of the version, for the audit log.
        #[arg(long, value_name = "TEXT")]
        comment: String,
        /// Version that the files are based on, or `none`: if another one is current, nothing changes. Default: the version
        /// that `rules show --to` recorded in the directory, or else the current version.
        #[arg(long, value_name = "NUMBER", value_parser = based_on)]
        based_on: Option<BaseVersion>,
        /// Skips the guardrails: accepts rules that deny all requests of a domain, or remove a domain with traffic.
        #[arg(long)]
        force: bool,
    },
    /// Activate the files of an earlier version again.
    Rollback {
        /// Earlier version.
        #[arg(value_name = "NUMBER", value_parser = number::<u64>)]
        to: u64,
        /// Comment of the version, for the audit log.
        #[arg(long, value_name = "TEXT", default_value = "")]
        comment: String,
        /// Version expected to be active; if another one is, nothing changes. Default: any.
        #[arg(long, value_name = "NUMBER", value_parser = number::<u64>)]
        based_on: Option<u64>,
        /// Skips the guardrails.
        #[arg(long)]
        force: bool,
    },
}

/// Rule version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSelector {
    /// Current version.
    Current,
    /// Version with this number.
    Number(u64),
}

/// Number of the version that a new one is based on, unless it is the first. An alias, since clap reads an `Option` as a flag
/// that may be left out.
pub type BaseVersion = Option<u64>;

/// Subject of a comparison with a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffSource {
    /// Version.
    Version(VersionSelector),
    /// Files of a directory.
    Directory(PathBuf),
}

/// Command about the records that operators change at run time.
#[derive(Clone, Debug, Subcommand)]
pub enum RecordCommand {
    /// List the records, in the order of their keys.
    List(RecordQuery),
    /// Show a record with its revision.
    Show {
        /// Key of the record, from `list`.
        #[arg(value_name = "KEY", value_parser = record_key)]
        key: RecordKey,
    },
    /// Remove a record; with an automatic entry, its ban too.
    Remove {
        /// Key of the record, from `list`.
        #[arg(value_name = "KEY", value_parser = record_key)]
        key: RecordKey,
        /// Revision of the record: if it has another one, nothing changes.
        #[arg(long, value_name = "REVISION", value_parser = number::<u64>)]
        base: Option<u64>,
        /// Checks the removal, and changes nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Lift an automatic entry with its ban, and exempt the client from another entry for some time.
    Exempt {
        /// Key of the entry, from `list`.
        #[arg(value_name = "KEY", value_parser = record_key)]
        key: RecordKey,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Lifetime of the exemption. Default: 7 days.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lifetime: Option<Duration>,
    },
    /// Put the records of a file: one JSON object a line, as in `records` of `PUT /api/v1/records`, or of `list --json`. A listed
    /// record is put without its ramp, until its end; automatic and ended ones are left out.
    Import {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        put: PutFlags,
    },
    /// Deny requests with a matching descriptor.
    Deny(EntryFlags),
    /// Allow requests with a matching descriptor, whatever limits, bans and deny entries there are.
    Allow(EntryFlags),
    /// Switch a rule off, to shadow mode, or to decide without Redis (`emergency`).
    Switch {
        /// `off`: the rule does not limit. `shadow`: requests over the limit are counted and allowed. `emergency`: each
        /// instance decides all rules of the domain by itself, without Redis.
        #[arg(value_name = "off|shadow|emergency", value_parser = mode)]
        mode: SwitchMode,
        #[command(flatten)]
        rule: RuleSelector,
        /// With `shadow`: the percentage of keys for which the rule is enforced nevertheless. Default: 0.
        #[arg(long, value_name = "PERCENT", value_parser = percentage)]
        enforce_percent: Option<f64>,
        #[command(flatten)]
        change: ChangeFlags,
        #[command(flatten)]
        end: Lifetime,
    },
    /// Enforce a rule for more and more of its keys. One instance advances the ramp, and sets it back if too many keys are
    /// denied.
    Ramp(RampFlags),
    /// Override the limit of a rule, or of one counter of it.
    Override {
        /// Domain of the rule.
        #[arg(long, value_name = "NAME")]
        domain: String,
        /// Path of the rule, as in `/rlconfig` and metrics: `tenant_acme.path`.
        #[arg(long, value_name = "PATH")]
        rule: String,
        /// Entries that the rule leaves open, separated by commas as for `explain`: the override is for the counter with
        /// these values.
        /// Default: for all counters of the rule.
        #[arg(long, value_name = "KEY=VALUE,…", value_parser = descriptor)]
        counter: Option<DescriptorArgument>,
        /// Keys of `rate_limit` with their values: `requests_per_unit=5000`, `unit=minute`, `burst=500`. What is not
        /// stated stays as in the rule.
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = limit)]
        rate_limit: Vec<LimitArgument>,
        #[command(flatten)]
        change: ChangeFlags,
        #[command(flatten)]
        end: Lifetime,
    },
}

/// Records to list.
#[derive(Args, Clone, Debug)]
pub struct RecordQuery {
    /// Kind of the records. Default: all.
    #[arg(long, value_parser = named(RecordKind::ALL, RecordKind::name))]
    pub kind: Option<RecordKind>,
    #[command(flatten)]
    pub of: RuleQuery,
    /// Text in the domain, rule, descriptor, reason or author, in any case of ASCII letters.
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Maximum number of records.
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = count::<usize>)]
    pub limit: usize,
}

/// Properties of each change that puts records.
#[derive(Args, Clone, Debug)]
pub struct PutFlags {
    /// Reason, for the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Skips the guardrails: accepts a limit that denies all requests of a rule, and an entry that denies more than 5 % of
    /// the current requests or all values of its keys.
    #[arg(long)]
    pub force: bool,
    /// Checks the change, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Properties of a change of one record.
#[derive(Args, Clone, Debug)]
pub struct ChangeFlags {
    #[command(flatten)]
    pub put: PutFlags,
    /// Revision of the record that is replaced, `0` for none: if there is another one, nothing changes. Default: any.
    #[arg(long, value_name = "REVISION", value_parser = number::<u64>)]
    pub base: Option<u64>,
}

/// Lifetime of a record.
#[derive(Args, Clone, Copy, Debug)]
pub struct Lifetime {
    /// Lifetime of the record. Default: until it is removed.
    #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
    pub lifetime: Option<Duration>,
}

/// Entry of a list.
#[derive(Args, Clone, Debug)]
pub struct EntryFlags {
    /// Domain of the requests; `*` for all domains.
    #[arg(long, value_name = "NAME|*")]
    pub domain: String,
    /// Entries that a descriptor must have, separated by commas. A value may be a pattern with `*`, or an address range
    /// in CIDR notation. A value in double quotes, escaped as in JSON, is compared character by character:
    /// `'api_key="a*,b"'`.
    #[arg(value_name = "KEY=VALUE,…", value_parser = |text: &str| parse_pairs(text).map(ListDescriptorArgument))]
    pub descriptor: ListDescriptorArgument,
    #[command(flatten)]
    pub change: ChangeFlags,
    #[command(flatten)]
    pub end: Lifetime,
}

/// Rule of a switch.
#[derive(Args, Clone, Debug)]
pub struct RuleSelector {
    /// Domain of the rule. `*`: every domain, for an emergency.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Path of the rule, as in `/rlconfig` and metrics: `tenant_acme.path`. `*`: all rules, for an emergency.
    #[arg(long, value_name = "PATH")]
    pub rule: String,
}

/// Ramp of a rule.
#[derive(Args, Clone, Debug)]
pub struct RampFlags {
    #[command(flatten)]
    pub rule: RuleSelector,
    /// Percentages of keys, each above the one before.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', required = true, value_parser = percentage)]
    pub steps: Vec<f64>,
    /// Time of all steps together, which last equally long.
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub over: Duration,
    /// Percentage of denied keys, of those that are enforced, above which the ramp is rolled back.
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub max_denied: f64,
    /// Hits of enforced keys without which a step is not judged, and does not end.
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = count::<u32>)]
    pub min_hits: u32,
    #[command(flatten)]
    pub change: ChangeFlags,
}

/// Key of `rate_limit` with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitArgument {
    /// Key.
    pub key: String,
    /// Value; null to remove the key.
    pub value: Value,
}

/// Descriptor of a list entry on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDescriptorArgument(pub Vec<ListPair>);

fn diff_source(words: OsString) -> DiffSource {
    match words.to_str().and_then(|text| which(text).ok()) {
        Some(version) => DiffSource::Version(version),
        None => DiffSource::Directory(words.into()),
    }
}

fn which(text: &str) -> Result<VersionSelector, String> {
    numbered(text, "current", VersionSelector::Current, VersionSelector::Number)
}

fn based_on(text: &str) -> Result<BaseVersion, String> {
    numbered(text, "none", None, Some)
}

/// Parses the number of a version, or a word in place of it.
fn numbered<T>(text: &str, word: &str, of_word: T, of_number: fn(u64) -> T) -> Result<T, String> {
    if text == word {
        return Ok(of_word);
    }
    text.parse().map(of_number).map_err(|_| format!("expected the number of a version, or {word}"))
}

fn mode(text: &str) -> Result<SwitchMode, String> {
    let known = SwitchMode::ALL.into_iter().find(|mode| mode.name() == text);
    known.ok_or_else(|| "expected off, shadow or emergency".to_owned())
}

/// Parses a key and its value, which is JSON if it looks so and a text otherwise.
fn limit(text: &str) -> Result<LimitArgument, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            Ok(LimitArgument { key: key.to_owned(), value })
        }
        _ => Err("expected a key of rate_limit with its value, such as requests_per_unit=500".to_owned()),
    }
}

fn record_key(text: &str) -> Result<RecordKey, &'static str> {
    RecordKey::try_from(text.to_owned())
}
