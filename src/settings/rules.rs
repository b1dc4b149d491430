//! Settings of the rules, and of the control plane that they may come from.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{ArgAction::Set, Args};
use http::Uri;
use tollgate_control::RulesSource;
use tollgate_rules::config::{Options, OverlaySlot};

use super::{error::Problem, store::StoreSettings};
use crate::flag_values::{
    self, DescriptorArgument, Headers, KeyPair, SERVER_URL, boolean, count, descriptor, key_pair, named,
    positive_duration, ratio, web_url,
};

/// Default of `--xds-backoff`.
pub(super) const BACKOFF: &str = "500ms,30s,0.5";

/// Source of the rules, and its options.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Rules")]
pub struct RulesSettings {
    /// Directory of the rules: every .yaml and .yml file in it and in its subdirectories. Changes take effect without a
    /// restart. With `--rules redis` or `memory`, the files are the first version and are read once.
    #[arg(id = "config", long, value_name = "DIR", default_value = "config/default")]
    pub directory: PathBuf,
    /// Source of the rules: `directory` (the files of --config), `redis` (versions in the Redis of --store, shared by all
    /// instances and changed through the admin API), `memory` (versions in this process), or `xds` (the control plane of
    /// --xds-server).
    #[arg(id = "rules", long, value_name = "SOURCE", default_value = "directory")]
    #[arg(value_parser = named(RulesSource::ALL, RulesSource::name), hide_possible_values = true)]
    pub source: RulesSource,
    /// File in which this instance keeps the overrides of rules, with mode 0600 and a lock file beside it: they are active
    /// from the start, and restored if Redis has lost them.
    #[arg(long, value_name = "FILE")]
    pub overrides_file: Option<PathBuf>,
    /// Flags of how files are read.
    #[command(flatten)]
    pub reading: ReadingFlags,
    /// Startup without valid rules: the instance is not ready and responds UNAVAILABLE until rules are loaded. Otherwise
    /// an invalid configuration fails startup with exit code 1, and startup waits for a control plane.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub start_without_rules: bool,
    /// Control plane of `--rules xds`.
    #[command(flatten)]
    pub xds: XdsSettings,
    /// Options for reading the files: `reading`, and what other flags state.
    #[arg(skip)]
    pub options: Options,
}

/// Options for reading the files, which `check` and `explain` have too.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Rules")]
pub struct ReadingFlags {
    /// Directory of files whose keys replace those of the rules that their patterns match: for rules that a control
    /// plane pushes, or that others generate. A server applies changes of these files without a restart.
    #[arg(long, value_name = "DIR")]
    pub rules_overlay: Option<PathBuf>,
    /// Merging of the descriptors of several files with the same domain, which is an error otherwise.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    merge_domains: bool,
    /// Treats warnings as errors.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    strict: bool,
    /// Accepts an empty directory, and in a server a change that removes more than half of the active rules at once, as
    /// a file `.allow-empty` in the directory does. Otherwise a server refuses such a change and keeps the active
    /// rules.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    allow_empty: bool,
    /// Charges a denied request only to the limit that denies it, in domains that do not state `atomic`. By default a
    /// denied request is charged to all of its limits.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    stop_when_denied: bool,
}

/// Client of a control plane.
#[derive(Args, Clone, PartialEq)]
#[command(next_help_heading = "Control plane (--rules xds)")]
pub struct XdsSettings {
    /// Control plane of `--rules xds`: http://HOST:PORT, or https:// for TLS.
    #[arg(id = "xds-server", long, value_name = "URL", value_parser = server)]
    pub server: Option<Uri>,
    /// Node id of this instance, by which the control plane selects its rules.
    #[arg(id = "xds-node-id", long, value_name = "NAME", default_value = "default")]
    pub node_id: String,
    /// Node metadata of this instance.
    #[arg(id = "xds-node-metadata", long, value_name = "KEY=VALUE,…", value_parser = descriptor)]
    pub node_metadata: Option<DescriptorArgument>,
    /// Headers of every call to the control plane.
    #[arg(id = "xds-headers", long, value_name = "NAME=VALUE,…", value_parser = headers)]
    pub headers: Option<Headers>,
    /// PEM file of the CAs for the certificate of the control plane. Default: the Mozilla root CAs. Read at every
    /// connection attempt, like the client certificate and its key.
    #[arg(id = "xds-ca", long, value_name = "FILE")]
    pub authorities: Option<PathBuf>,
    /// PEM files of the client certificate and of its key.
    #[arg(id = "xds-client-cert", long, value_name = "CERT,KEY", value_parser = key_pair)]
    pub client: Option<KeyPair>,
    /// Expected name of the certificate. Default: the host of the URL.
    #[arg(id = "xds-server-name", long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Pauses between connection attempts: the first one, the longest one, to which it doubles, and the random share of
    /// each, from 0 to 1, to subtract.
    #[arg(id = "xds-backoff", long, value_name = "INITIAL,MAX,JITTER", default_value = BACKOFF)]
    #[arg(value_parser = backoff)]
    pub backoff: BackoffSettings,
    /// Maximum size of a message from the control plane, in bytes.
    #[arg(id = "xds-max-message-bytes", long, value_name = "BYTES", default_value = "16777216")]
    #[arg(value_parser = count::<usize>)]
    pub max_message_bytes: usize,
    /// Time between two pings, which detect a lost connection: grpc-go servers, such as Envoy Gateway, close connections that
    /// ping more often than every 5 minutes. For tests.
    #[arg(id = "xds-keepalive", long, hide = true, default_value = "6m", value_parser = positive_duration)]
    pub keepalive: Duration,
    /// Time without a response on an open stream after which the control plane counts as without rules: with
    /// --start-without-rules, this instance is then ready. For tests.
    #[arg(id = "xds-initial-fetch-timeout", long, hide = true, default_value = "10s")]
    #[arg(value_parser = positive_duration)]
    pub initial_fetch_timeout: Duration,
}

/// Exponential backoff, which doubles from `initial` to `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffSettings {
    /// First pause.
    pub initial: Duration,
    /// Longest pause.
    pub max: Duration,
    /// Random share of each pause, from 0 to 1, to subtract, so that instances do not reconnect at once.
    pub jitter: f64,
}

impl RulesSettings {
    pub(super) fn check(&self, store: &StoreSettings) -> Result<(), Problem> {
        let fails = |flag, reason| Err(Problem::new(flag, reason));
        match (self.source, store.redis(), &self.xds.server) {
            (RulesSource::Redis, None, _) => {
                return fails("--rules", "`redis` without a Redis; expected --store with its URL");
            }
            (RulesSource::Memory, Some(_), _) => {
                return fails("--rules", "`memory` with a Redis store; expected redis, or --store memory");
            }
            (RulesSource::Redis | RulesSource::Memory, ..) if self.reading.rules_overlay.is_some() => {
                return fails("--rules-overlay", "only for --rules directory or xds");
            }
            (RulesSource::Xds, _, None) => {
                return fails("--rules", "`xds` without a control plane; expected --xds-server");
            }
            (RulesSource::Xds, _, Some(_)) | (_, _, None) => {}
            (_, _, Some(_)) => return fails("--xds-server", "only for --rules xds"),
        }
        let tls_flags = [
            ("--xds-ca", self.xds.authorities.is_some()),
            ("--xds-client-cert", self.xds.client.is_some()),
            ("--xds-server-name", self.xds.server_name.is_some()),
        ];
        match tls_flags.into_iter().find(|(_, is_set)| *is_set && !self.xds.has_tls()) {
            Some((flag, _)) => fails(flag, "requires --xds-server with an https:// URL"),
            None => Ok(()),
        }
    }
}

impl ReadingFlags {
    /// Options for reading the files.
    pub fn options(&self) -> Options {
        Options {
            merge_domains: self.merge_domains,
            strict: self.strict,
            allow_empty: self.allow_empty,
            overlay: self.rules_overlay.as_ref().map(|_| OverlaySlot::leaked()),
            stop_when_denied: self.stop_when_denied,
            ..Default::default()
        }
    }
}

impl XdsSettings {
    /// Whether the control plane has TLS.
    pub fn has_tls(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.scheme_str() == Some("https"))
    }
}

/// Omits the headers, which may be secret.
impl fmt::Debug for XdsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdsSettings").field("server", &self.server).finish_non_exhaustive()
    }
}

fn backoff(text: &str) -> Result<BackoffSettings, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [initial, max, jitter] = parts[..] else {
        return Err("expected INITIAL,MAX,JITTER, such as 500ms,30s,0.5".to_owned());
    };
    let max = positive_duration(max)?;
    let initial = positive_duration(initial)?.min(max);
    Ok(BackoffSettings { initial, max, jitter: ratio(jitter)? })
}

/// Parses the URL of a control plane, without a password, as it is logged.
fn server(text: &str) -> Result<Uri, String> {
    let uri = web_url(text, SERVER_URL)?;
    let is_bare = matches!(uri.path_and_query().map(|rest| rest.as_str()), None | Some("/"));
    // Default ports of HTTP are not those of control planes.
    if is_bare && uri.port().is_some() { Ok(uri) } else { Err(SERVER_URL.to_owned()) }
}

/// Parses headers. Errors omit the values, which may be secret.
fn headers(text: &str) -> Result<Headers, String> {
    flag_values::headers(text, |value| Some(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_plane_has_a_scheme_and_a_host_and_no_password() {
        for good in ["http://localhost:18000", "https://envoy-gateway:18001", "http://[::1]:18000/"] {
            assert!(server(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "http://plane",
            "https://plane:",
            "localhost:18000",
            "xds://a:1",
            "http://",
            "https://u:secret@h:1",
            "http://h:1/p",
        ] {
            assert!(server(bad).is_err_and(|error| !error.contains("secret")), "{bad}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_are_refused_without_their_values() {
        let Headers(read) = headers("authorization=Bearer x=y, X-Tenant=a").expect("good");
        assert_eq!(
            read.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["authorization", "x-tenant"]
        );
        assert_eq!(read[0].1, "Bearer x=y");
        for bad in ["", "secret", "a b=secret", "a=sec\nret", "grpc-timeout=1S", "trace-bin=AA", "a=1,"] {
            assert!(headers(bad).is_err_and(|error| !error.contains("sec")), "{bad}");
        }
    }
}
