//! Settings of the client of a control plane.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use http::Uri;
use tollgate_flags::{
    self as flags, DescriptorArgument, Headers, KeyPair, SERVER_URL, Secret, count, descriptor, key_pair,
    positive_duration, ratio, web_url,
};

/// Default of `--xds-backoff`.
pub const BACKOFF: &str = "500ms,30s,0.5";

/// Client of a control plane. `Debug` shows no value of a header.
#[derive(Args, Clone, Debug, PartialEq)]
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

impl XdsSettings {
    /// Whether the control plane has TLS.
    pub fn has_tls(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.scheme_str() == Some("https"))
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
fn headers(text: &str) -> Result<Headers, Secret> {
    flags::headers(text, |value| Some(value.to_owned()))
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
        let read = headers("authorization=Bearer x=y, X-Tenant=a").expect("good");
        assert_eq!(
            read.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["authorization", "x-tenant"]
        );
        assert_eq!(read[0].1, "Bearer x=y");
        for bad in ["", "secret", "a b=secret", "a=sec\nret", "grpc-timeout=1S", "trace-bin=AA", "a=1,"] {
            assert!(headers(bad).is_err_and(|error| !error.0.contains("sec")), "{bad}");
        }
    }
}
