//! The control plane that rules come from.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use http::{HeaderName, HeaderValue, Uri, uri::Authority};

use super::{
    error::Problem,
    parsers::{DescriptorWords, count, descriptor, positive_duration, ratio},
};

/// Between two pings. Servers made with gRPC's Go library close connections that ping more often than every 5 minutes.
const KEEPALIVE: &str = "6m";

/// How rules are had of a control plane.
#[derive(Clone, PartialEq)]
pub struct XdsSettings {
    /// Its URL: http or https, a host and a port.
    pub server: Uri,
    /// What this instance goes by there.
    pub node_id: String,
    /// What else it is told of this instance.
    pub node_metadata: Vec<(String, String)>,
    /// What goes with every call, and may be secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Its TLS, where the URL says https.
    pub tls: Option<XdsTlsSettings>,
    /// The pauses between attempts.
    pub backoff: BackoffSettings,
    /// Between two pings, after which a connection without an answer is given up.
    pub keepalive: Duration,
    /// Bytes of the largest message that is taken.
    pub max_message_bytes: usize,
    /// How long it may say nothing on an open stream until that means that it has no rules.
    pub initial_fetch_timeout: Duration,
}

/// Without the headers' values.
impl std::fmt::Debug for XdsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdsSettings").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Files, read again at every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsTlsSettings {
    /// PEM file of the authorities that its certificate is to be of, in place of the usual public ones.
    pub authorities: Option<PathBuf>,
    /// PEM files of the certificate to show, and of its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name that its certificate is to have, in place of the URL's host.
    pub server_name: Option<String>,
}

/// The pauses between attempts: they double from `initial` to `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffSettings {
    /// The first one.
    pub initial: Duration,
    /// The longest one.
    pub max: Duration,
    /// The share of each, from 0 to 1, that chance may take off, so that instances don't all come at once.
    pub jitter: f64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Control plane (--rules xds)")]
pub(super) struct XdsFlags {
    /// Control plane that `--rules xds` has the rules of: http://HOST:PORT, or https:// for TLS.
    #[arg(long, value_name = "URL", value_parser = server)]
    xds_server: Option<Uri>,
    /// What this instance goes by there, which decides which rules it is sent.
    #[arg(long, value_name = "NAME", default_value = "default")]
    xds_node_id: String,
    /// What else the control plane is told of this instance.
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = descriptor)]
    xds_node_metadata: Option<DescriptorWords>,
    /// Headers that go with every call to it.
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = headers)]
    xds_headers: Option<Headers>,
    /// PEM file of the authorities that may sign its certificate. Default: those of the web. Read again at every
    /// connection, like the other files.
    #[arg(long, value_name = "FILE")]
    xds_ca: Option<PathBuf>,
    /// PEM file of the certificate to show to it; needs --xds-client-key.
    #[arg(long, value_name = "FILE")]
    xds_client_cert: Option<PathBuf>,
    /// PEM file of that certificate's key.
    #[arg(long, value_name = "FILE")]
    xds_client_key: Option<PathBuf>,
    /// Name that its certificate must have, in place of the URL's host.
    #[arg(long, value_name = "NAME")]
    xds_server_name: Option<String>,
    /// Pause after the first attempt to reach it that fails; each further one is twice as long.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = positive_duration)]
    xds_backoff_initial: Duration,
    /// Longest pause between attempts.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    xds_backoff_max: Duration,
    /// Share of each pause, from 0 to 1, that chance may take off.
    #[arg(long, value_name = "RATIO", default_value = "0.5", value_parser = ratio)]
    xds_backoff_jitter: f64,
    /// Time between pings that tell whether it is still there. Servers made with gRPC's Go library, such as Envoy
    /// Gateway's, close connections that ping more often than every 5 minutes.
    #[arg(long, value_name = "DURATION", default_value = KEEPALIVE, value_parser = positive_duration)]
    xds_keepalive: Duration,
    /// Bytes of the largest message that is taken from it.
    #[arg(long, value_name = "BYTES", default_value = "16777216", value_parser = count)]
    xds_max_message_bytes: usize,
    /// How long an open stream may bring nothing until that means that there are no rules: with
    /// --start-without-rules, this instance is ready then.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    xds_initial_fetch_timeout: Duration,
}

impl XdsFlags {
    /// The settings, if a control plane is named.
    pub(super) fn resolve(self) -> Result<Option<XdsSettings>, Problem> {
        let client = match (self.xds_client_cert, self.xds_client_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(Problem::new("--xds-client-cert", "needs --xds-client-key")),
            (None, Some(_)) => return Err(Problem::new("--xds-client-key", "needs --xds-client-cert")),
        };
        let tls_flags = [
            ("--xds-ca", self.xds_ca.is_some()),
            ("--xds-client-cert", client.is_some()),
            ("--xds-server-name", self.xds_server_name.is_some()),
        ];
        let is_tls = self.xds_server.as_ref().is_some_and(|server| server.scheme_str() == Some("https"));
        if let Some((flag, _)) = tls_flags.into_iter().find(|(_, is_set)| *is_set && !is_tls) {
            return Err(Problem::new(flag, "needs --xds-server with an https:// URL"));
        }
        let tls = is_tls.then_some(XdsTlsSettings {
            authorities: self.xds_ca,
            client,
            server_name: self.xds_server_name,
        });
        Ok(self.xds_server.map(|server| XdsSettings {
            server,
            node_id: self.xds_node_id,
            node_metadata: self.xds_node_metadata.map(|DescriptorWords(pairs)| pairs).unwrap_or_default(),
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

/// Headers as they are sent.
#[derive(Clone, Debug)]
struct Headers(Vec<(HeaderName, HeaderValue)>);

/// Reads the URL of a control plane. It is logged, so that it must have no password.
fn server(text: &str) -> Result<Uri, String> {
    const EXPECTED: &str = "expected http://HOST:PORT or https://HOST:PORT, without a user";
    let uri: Uri = text.parse().map_err(|_| EXPECTED)?;
    let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_bare = matches!(uri.path_and_query().map(|rest| rest.as_str()), None | Some("/"));
    match uri.authority() {
        Some(authority) if has_scheme && is_bare && is_named(authority) => Ok(uri),
        Some(_) | None => Err(EXPECTED.to_owned()),
    }
}

/// Whether that is a host with a port, and nothing else. The port that a browser would add is none of a control plane.
fn is_named(authority: &Authority) -> bool {
    authority.port_u16().is_some() && !authority.as_str().contains('@')
}

/// Reads headers, whose values may be secret and are not told.
fn headers(text: &str) -> Result<Headers, String> {
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        let is_ours = name.as_str().starts_with("grpc-") || name.as_str().ends_with("-bin");
        (!is_ours).then_some((name, value))
    };
    let headers: Option<Vec<_>> = text.split(',').map(header).collect();
    headers.map(Headers).ok_or_else(|| "expected NAME=VALUE,… with names and values of headers".to_owned())
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
