//! Ports, and the settings of their connections and of their TLS.

use std::{fmt, path::PathBuf, time::Duration};

use clap::Args;
use tollgate_flags::{KeyPair, positive_duration};

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

/// Connections of every port.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Time that a client has for its TLS handshake; then for the HTTP/2 preface, or the head of each HTTP/1 request; and
    /// for the rest of a gRPC call that has begun.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    pub handshake_timeout: Duration,
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

impl TlsSettings {
    /// The flag that names `file`.
    pub fn flag(&self, file: TlsFile) -> String {
        match file {
            TlsFile::Authorities if self.port != Port::Region => format!("--{}-tls-client-ca", self.port),
            TlsFile::Certificate | TlsFile::Key | TlsFile::Authorities => format!("--{}-tls", self.port),
        }
    }

    /// TLS of a port whose flags have these values.
    pub fn of_flags(
        port: Port,
        pair: Option<&KeyPair>,
        authorities: Option<&PathBuf>,
        names: &[String],
    ) -> Option<Self> {
        let KeyPair { certificate, key } = pair?.clone();
        let clients =
            authorities.map(|file| ClientSettings { authorities: file.clone(), names: names.to_owned() });
        Some(Self { port, certificate, key, clients })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
