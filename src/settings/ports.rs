//! Settings of the ports: addresses, TLS, and bounds of connections.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgAction::Set, Args};

use super::error::Problem;
use crate::flag_values::{KeyPair, address, boolean, count, duration, files, key_pair, name};

/// Time between two HTTP/2 pings: a firewall forgets an idle connection after minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of the reply to a ping, and of a write that a client does not read: the default of gRPC servers.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of a request message, in bytes. No proxy sends one of a tenth of that.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Default address of the admin port: the debug port of envoyproxy/ratelimit, on the loopback interface.
const DEFAULT_ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6070);

/// Age of a connection, which may be unlimited. An alias, since clap reads an `Option` as a flag that may be left out.
type MaxAge = Option<Duration>;

/// Address of the admin port, unless it is off.
type AdminAddress = Option<SocketAddr>;

/// gRPC port and its connections.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "gRPC")]
pub struct GrpcSettings {
    /// Address of the gRPC service, or unix:PATH for a unix socket instead of a TCP port.
    #[arg(id = "grpc-address", long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "0.0.0.0:8081")]
    #[arg(value_parser = grpc_listen)]
    pub listen: GrpcListen,
    /// PEM files of the certificate chain of the gRPC port and of its key; enables TLS. Reloaded when they change, like all
    /// TLS files of ports.
    #[arg(id = "grpc-tls", long, value_name = "CERT,KEY", value_parser = key_pair)]
    pair: Option<KeyPair>,
    /// PEM file of the CAs of client certificates, which are then required.
    #[arg(id = "grpc-tls-client-ca", long, value_name = "FILE", requires = "grpc-tls")]
    client_ca: Option<PathBuf>,
    /// Accepted names of client certificates, such as SPIFFE ids, compared exactly with the DNS and URI names of the
    /// certificate.
    #[arg(id = "grpc-tls-client-san", long, value_name = "NAME,…", value_delimiter = ',', value_parser = name)]
    #[arg(requires = "grpc-tls-client-ca")]
    client_names: Vec<String>,
    /// Maximum number of open gRPC connections; a further one takes the place of the longest idle one, or is closed.
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = count::<usize>)]
    pub max_connections: usize,
    /// Age at which a connection is drained with GOAWAY (± 10 %), so that clients rebalance to new instances. 0:
    /// unlimited.
    #[arg(id = "grpc-max-connection-age", long, value_name = "DURATION", default_value = "24h")]
    #[arg(value_parser = unless_zero)]
    pub max_connection_age: MaxAge,
    /// Time for the calls of a connection to finish after GOAWAY, before it is closed. 0: unlimited.
    #[arg(id = "grpc-max-connection-age-grace", long, value_name = "DURATION", default_value = "1h")]
    #[arg(value_parser = unless_zero)]
    pub max_connection_age_grace: MaxAge,
    /// Time between two HTTP/2 pings.
    #[arg(skip = Some(KEEPALIVE_INTERVAL))]
    pub keepalive_interval: Option<Duration>,
    /// Timeout of the reply to a ping, and of a write that a client does not read.
    #[arg(skip = KEEPALIVE_TIMEOUT)]
    pub keepalive_timeout: Duration,
    /// Maximum size of a request message, in bytes.
    #[arg(skip = MAX_MESSAGE_BYTES)]
    pub max_message_bytes: usize,
}

/// Listen address of the gRPC port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcListen {
    /// TCP address; port 0 selects a free port.
    Tcp(SocketAddr),
    /// Path of a unix socket.
    Unix(PathBuf),
}

/// HTTP port with `/json`, `/healthcheck` and `/metrics`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "HTTP")]
pub struct HttpSettings {
    /// Address of the HTTP port: /json, /healthcheck, /metrics.
    #[arg(id = "http-address", long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    #[arg(value_parser = address)]
    pub address: SocketAddr,
    /// PEM files of the certificate chain of the HTTP port and of its key; enables HTTPS.
    #[arg(id = "http-tls", long, value_name = "CERT,KEY", value_parser = key_pair)]
    pair: Option<KeyPair>,
    /// PEM file of the CAs of client certificates, which are then required.
    #[arg(id = "http-tls-client-ca", long, value_name = "FILE", requires = "http-tls")]
    client_ca: Option<PathBuf>,
    /// Accepted DNS or URI names of client certificates.
    #[arg(id = "http-tls-client-san", long, value_name = "NAME,…", value_delimiter = ',', value_parser = name)]
    #[arg(requires = "http-tls-client-ca")]
    client_names: Vec<String>,
    /// Address of a port for metrics only, besides /metrics on the other ports, and the path there. Default of the path:
    /// /metrics.
    #[arg(id = "metrics-address", long, value_name = "ADDRESS:PORT[/PATH]", value_parser = metrics_listen)]
    pub metrics: Option<MetricsSettings>,
}

/// Port for metrics only, besides `/metrics` on the other ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Listen address.
    pub address: SocketAddr,
    /// Path of the metrics; other paths return 404.
    pub path: String,
}

/// Admin port.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Admin")]
pub struct AdminSettings {
    /// Address of the admin port: the dashboard, /api/v1, /rlconfig, /metrics, /healthcheck; or `off`. An address that is
    /// not a loopback address requires tokens or client certificates.
    #[arg(id = "admin-address", long, value_name = "ADDRESS:PORT|off", default_value = "127.0.0.1:6070")]
    #[arg(value_parser = unless_off)]
    pub address: AdminAddress,
    /// File with the tokens that requests must present (`Authorization: Bearer …`), each of 16 bytes or more: lines
    /// `NAME ROLE TOKEN`, where the role is viewer or operator, or a single operator token. Reloaded when it changes.
    #[arg(id = "admin-token-file", long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM files of the certificate chain of the admin port and of its key; enables HTTPS.
    #[arg(id = "admin-tls", long, value_name = "CERT,KEY", value_parser = key_pair)]
    pair: Option<KeyPair>,
    /// PEM file of the CAs of client certificates, which are then required.
    #[arg(id = "admin-tls-client-ca", long, value_name = "FILE", requires = "admin-tls")]
    client_ca: Option<PathBuf>,
    /// Accepted DNS or URI names of client certificates.
    #[arg(id = "admin-tls-client-san", long, value_name = "NAME,…", value_delimiter = ',', value_parser = name)]
    #[arg(requires = "admin-tls-client-ca")]
    client_names: Vec<String>,
    /// Sampling of top talkers: the keys with the most requests and denials, in bounded memory.
    #[arg(long, value_name = "BOOL", default_value = "true", action = Set, value_parser = boolean)]
    pub top_talkers: bool,
}

/// Own region, and the table of all regions.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Regions")]
pub struct RegionSettings {
    /// Name of this instance's region in the table of --regions.
    #[arg(id = "region", long, value_name = "NAME", required = false, requires = "regions")]
    pub name: String,
    /// YAML file with the regions that enforce limits together (`scope: global`, `scope: primary`), and their weights. Read
    /// again when it changes; an invalid table, or one whose generation is not higher, does not replace the active one.
    #[arg(id = "regions", long, value_name = "FILE", required = false, requires = "region")]
    pub table: PathBuf,
    /// Service between regions, if this instance has part in it.
    #[arg(skip)]
    pub peers: Option<PeerSettings>,
}

/// Service between regions.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Address of the service between regions. Without it, the instance takes no part in changes of weights: a raised share
    /// applies after a restart.
    #[arg(id = "region-address", long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[arg(required = false, requires_all = ["region-tls", "regions"])]
    pub address: SocketAddr,
    /// PEM files of the certificate chain of that service, of its key, and of the CAs of the certificates of all regions: for
    /// its port and for connections to other regions. The certificate has the region's `certificate_name`.
    #[arg(id = "region-tls", long, value_name = "CERT,KEY,CA", value_parser = region_tls)]
    #[arg(required = false, requires = "region-address")]
    pub tls: TlsSettings,
}

tollgate_core::named! {
    /// Port of the server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Port {
        /// Rate-limit service.
        Grpc = "grpc",
        /// JSON form of the service, health and metrics.
        Http = "http",
        /// Admin API and dashboard.
        Admin = "admin",
        /// Metrics only.
        Metrics = "metrics",
        /// Service between regions.
        Region = "region",
    }
}

/// TLS of a port, in files that are reloaded when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The port.
    pub port: Port,
    /// PEM file of the certificate chain.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// Authentication of clients. `None`: not required.
    pub clients: Option<ClientSettings>,
}

/// Authentication of clients by certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// PEM file of the CAs of client certificates.
    pub authorities: PathBuf,
    /// Accepted DNS or URI names of client certificates. Empty: every name.
    pub names: Vec<String>,
}

/// File of a port's TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// Certificate chain.
    Certificate,
    /// Key of the certificate.
    Key,
    /// CAs of client certificates.
    Authorities,
}

impl GrpcSettings {
    /// TLS of the port.
    pub fn tls(&self) -> Option<TlsSettings> {
        tls(Port::Grpc, self.pair.as_ref(), self.client_ca.as_ref(), &self.client_names)
    }
}

impl HttpSettings {
    /// TLS of the port.
    pub fn tls(&self) -> Option<TlsSettings> {
        tls(Port::Http, self.pair.as_ref(), self.client_ca.as_ref(), &self.client_names)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        match &self.metrics {
            Some(metrics) if metrics.address.port() != 0 && metrics.address == self.address => {
                Err(Problem::new("--metrics-address", "same as --http-address; expected another port"))
            }
            _ => Ok(()),
        }
    }
}

impl AdminSettings {
    /// TLS of the port.
    pub fn tls(&self) -> Option<TlsSettings> {
        tls(Port::Admin, self.pair.as_ref(), self.client_ca.as_ref(), &self.client_names)
    }

    /// Whether clients must present certificates.
    pub const fn requires_client_certificate(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Whether the address is the default.
    pub fn is_default(&self) -> bool {
        self.address == Some(DEFAULT_ADMIN_ADDRESS)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        let is_reachable = self.address.is_some_and(|address| !address.ip().to_canonical().is_loopback());
        if is_reachable && !self.requires_client_certificate() && self.token_file.is_none() {
            return Err(Problem::new(
                "--admin-address",
                "reachable from other machines without authentication; expected a loopback address, \
                 --admin-token-file, or --admin-tls-client-ca with --admin-tls",
            ));
        }
        Ok(())
    }
}

impl TlsSettings {
    /// The flag that names `file`.
    pub fn flag(&self, file: TlsFile) -> String {
        match file {
            TlsFile::Authorities if self.port != Port::Region => format!("--{}-tls-client-ca", self.port),
            TlsFile::Certificate | TlsFile::Key | TlsFile::Authorities => format!("--{}-tls", self.port),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for GrpcListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// TLS of a port whose flags have these values.
fn tls(
    port: Port,
    pair: Option<&KeyPair>,
    authorities: Option<&PathBuf>,
    names: &[String],
) -> Option<TlsSettings> {
    let KeyPair { certificate, key } = pair?.clone();
    let clients =
        authorities.map(|file| ClientSettings { authorities: file.clone(), names: names.to_owned() });
    Some(TlsSettings { port, certificate, key, clients })
}

fn region_tls(text: &str) -> Result<TlsSettings, String> {
    let [certificate, key, authorities] =
        files(text).ok_or("expected CERT,KEY,CA, the files of a certificate, its key and the CAs")?;
    let clients = Some(ClientSettings { authorities, names: Vec::new() });
    Ok(TlsSettings { port: Port::Region, certificate, key, clients })
}

fn grpc_listen(text: &str) -> Result<GrpcListen, String> {
    match text.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(GrpcListen::Unix(path.into())),
        _ => address(text).map(GrpcListen::Tcp).map_err(|error| format!("{error}, or unix:PATH")),
    }
}

fn metrics_listen(text: &str) -> Result<MetricsSettings, String> {
    let (listen, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let is_printable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    if !path.bytes().all(is_printable) {
        return Err("expected ADDRESS:PORT with a path such as /metrics".to_owned());
    }
    let path = if path.is_empty() { "/metrics" } else { path }.to_owned();
    Ok(MetricsSettings { address: address(listen)?, path })
}

fn unless_off(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        text => address(text).map(Some).map_err(|error| format!("{error}; or off")),
    }
}

fn unless_zero(text: &str) -> Result<Option<Duration>, String> {
    duration(text).map(|duration| (!duration.is_zero()).then_some(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metrics_port_has_a_path_without_a_query() {
        let path = |text: &str| metrics_listen(&format!("1.2.3.4:5{text}")).map(|metrics| metrics.path);
        for (text, expected) in [("", "/metrics"), ("/", "/"), ("/metrics", "/metrics"), ("/a/b.c", "/a/b.c")]
        {
            assert_eq!(path(text).as_deref(), Ok(expected));
        }
        assert!(["metrics", "/a?b", "/a b", "/#"].into_iter().all(|text| path(text).is_err()));
    }
}
