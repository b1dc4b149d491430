//! Settings of the control plane.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use http::{HeaderName, HeaderValue, Uri};

use super::{
    error::Problem,
    parsers::{self, DescriptorArgument, Headers, count, descriptor, positive_duration, ratio, web_url},
};

/// Default time between two pings: grpc-go servers close connections that ping more often than every 5 minutes.
const DEFAULT_KEEPALIVE: &str = "6m";

/// Client of a control plane.
#[derive(Clone, PartialEq)]
pub struct XdsSettings {
    /// URL of the control plane: http or https, a host and a port.
    pub server: Uri,
    /// Node id of this instance.
    pub node_id: String,
    /// Node metadata of this instance.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of every call, which may be secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// TLS of an https URL.
    pub tls: Option<XdsTlsSettings>,
    /// Backoff between attempts.
    pub backoff: BackoffSettings,
    /// Time between two pings, after which a connection without a reply is closed.
    pub keepalive: Duration,
    /// Maximum size of a message, in bytes.
    pub max_message_bytes: usize,
    /// Time without a response on an open stream after which the control plane counts as without rules.
    pub initial_fetch_timeout: Duration,
}

/// Omits the headers, which may be secret.
impl std::fmt::Debug for XdsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdsSettings").field("server", &self.server).finish_non_exhaustive()
    }
}

/// TLS files, read at every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsTlsSettings {
    /// PEM file of the CAs for the certificate of the control plane. `None`: the Mozilla root CAs.
    pub authorities: Option<PathBuf>,
    /// PEM files of the client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Expected name of the certificate. `None`: the host of the URL.
    pub server_name: Option<String>,
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

#[derive(Args, Debug)]
#[command(next_help_heading = "Control plane (--rules xds)")]
pub(super) struct XdsFlags {
    /// Control plane of `--rules xds`: http://HOST:PORT, or https:// for TLS.
    #[arg(long, value_name = "URL", value_parser = server)]
    xds_server: Option<Uri>,
    /// Node id of this instance, by which the control plane selects its rules.
    #[arg(long, value_name = "NAME", default_value = "default")]
    xds_node_id: String,
    /// Node metadata of this instance.
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = descriptor)]
    xds_node_metadata: Option<DescriptorArgument>,
    /// Headers of every call to the control plane.
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = headers)]
    xds_headers: Option<Headers>,
    /// PEM file of the CAs for the certificate of the control plane. Default: the Mozilla root CAs. Read at every
    /// connection attempt, like the client certificate and its key.
    #[arg(long, value_name = "FILE")]
    xds_ca: Option<PathBuf>,
    /// PEM file of the client certificate; requires --xds-client-key.
    #[arg(long, value_name = "FILE")]
    xds_client_cert: Option<PathBuf>,
    /// PEM file of the key of that certificate.
    #[arg(long, value_name = "FILE")]
    xds_client_key: Option<PathBuf>,
    /// Expected name of the certificate. Default: the host of the URL.
    #[arg(long, value_name = "NAME")]
    xds_server_name: Option<String>,
    /// Pause after the first failed connection attempt; it doubles with each further one.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = positive_duration)]
    xds_backoff_initial: Duration,
    /// Longest pause between connection attempts.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    xds_backoff_max: Duration,
    /// Random share of each pause, from 0 to 1, to subtract.
    #[arg(long, value_name = "RATIO", default_value = "0.5", value_parser = ratio)]
    xds_backoff_jitter: f64,
    /// Time between two pings, which detect a lost connection. grpc-go servers, such as Envoy Gateway, close connections
    /// that ping more often than every 5 minutes.
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_KEEPALIVE, value_parser = positive_duration)]
    xds_keepalive: Duration,
    /// Maximum size of a message from the control plane, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "16777216", value_parser = count::<usize>)]
    xds_max_message_bytes: usize,
    /// Time without a response on an open stream after which the control plane counts as without rules: with
    /// --start-without-rules, this instance is then ready.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    xds_initial_fetch_timeout: Duration,
}

impl XdsFlags {
    /// Resolves the flags, if a control plane is named.
    pub(super) fn resolve(self) -> Result<Option<XdsSettings>, Problem> {
        let client = match (self.xds_client_cert, self.xds_client_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(Problem::new("--xds-client-cert", "requires --xds-client-key")),
            (None, Some(_)) => return Err(Problem::new("--xds-client-key", "requires --xds-client-cert")),
        };
        let tls_flags = [
            ("--xds-ca", self.xds_ca.is_some()),
            ("--xds-client-cert", client.is_some()),
            ("--xds-server-name", self.xds_server_name.is_some()),
        ];
        let is_tls = self.xds_server.as_ref().is_some_and(|server| server.scheme_str() == Some("https"));
        if let Some((flag, _)) = tls_flags.into_iter().find(|(_, is_set)| *is_set && !is_tls) {
            return Err(Problem::new(flag, "requires --xds-server with an https:// URL"));
        }
        let tls = is_tls.then_some(XdsTlsSettings {
            authorities: self.xds_ca,
            client,
            server_name: self.xds_server_name,
        });
        Ok(self.xds_server.map(|server| XdsSettings {
            server,
            node_id: self.xds_node_id,
            node_metadata: self.xds_node_metadata.map(|DescriptorArgument(pairs)| pairs).unwrap_or_default(),
            headers: self.xds_headers.map(|Headers(headers)| headers).unwrap_or_default(),
            tls,
            backoff: BackoffSettings {
                initial: self.xds_backoff_initial.min(self.xds_backoff_max),
                max: self.xds_backoff_max,
                jitter: self.xds_backoff_jitter,
            },
            keepalive: self.xds_keepalive,
            max_message_bytes: self.xds_max_message_bytes,
            initial_fetch_timeout: self.xds_initial_fetch_timeout,
        }))
    }
}

/// Parses the URL of a control plane, without a password, as it is logged.
fn server(text: &str) -> Result<Uri, String> {
    const EXPECTED: &str = "expected http://HOST:PORT or https://HOST:PORT, without a user";
    let uri = web_url(text, EXPECTED)?;
    let is_bare = matches!(uri.path_and_query().map(|rest| rest.as_str()), None | Some("/"));
    // Default ports of HTTP are not those of control planes.
    if is_bare && uri.port().is_some() { Ok(uri) } else { Err(EXPECTED.to_owned()) }
}

/// Parses headers. Errors omit the values, which may be secret.
fn headers(text: &str) -> Result<Headers, String> {
    parsers::headers(text, |value| Some(value.to_owned()))
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
