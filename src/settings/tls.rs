//! Settings of TLS on the ports.

use std::{fmt, path::PathBuf};

use clap::Args;

use super::error::Problem;

/// Port of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Rate-limit service.
    Grpc,
    /// JSON form of the service, health and metrics.
    Http,
    /// Admin API and dashboard.
    Admin,
    /// Metrics only.
    Metrics,
    /// Service between regions.
    Region,
}

impl Port {
    /// Name in flags, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
            Self::Region => "region",
        }
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

impl TlsSettings {
    /// The flag that names `file`.
    pub fn flag(&self, file: TlsFile) -> String {
        let what = match file {
            TlsFile::Certificate => "cert",
            TlsFile::Key => "key",
            TlsFile::Authorities if self.port == Port::Region => "ca",
            TlsFile::Authorities => "client-ca",
        };
        format!("--{}-tls-{what}", self.port.name())
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Args, Debug)]
pub(super) struct GrpcTlsFlags {
    /// PEM file of the certificate chain of the gRPC port; enables TLS. Reloaded when it changes, like all TLS files of
    /// ports.
    #[arg(long, value_name = "FILE")]
    grpc_tls_cert: Option<PathBuf>,
    /// PEM file of the key of that certificate.
    #[arg(long, value_name = "FILE")]
    grpc_tls_key: Option<PathBuf>,
    /// PEM file of the CAs of client certificates, which are then required.
    #[arg(long, value_name = "FILE")]
    grpc_tls_client_ca: Option<PathBuf>,
    /// Accepted names of client certificates, such as SPIFFE ids, compared exactly with the DNS and URI names of the
    /// certificate.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    grpc_tls_client_san: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct HttpTlsFlags {
    /// PEM file of the certificate chain of the HTTP port; enables HTTPS.
    #[arg(long, value_name = "FILE")]
    http_tls_cert: Option<PathBuf>,
    /// PEM file of the key of that certificate.
    #[arg(long, value_name = "FILE")]
    http_tls_key: Option<PathBuf>,
    /// PEM file of the CAs of client certificates, which are then required.
    #[arg(long, value_name = "FILE")]
    http_tls_client_ca: Option<PathBuf>,
    /// Accepted DNS or URI names of client certificates.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    http_tls_client_san: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct AdminTlsFlags {
    /// PEM file of the certificate chain of the admin port; enables HTTPS.
    #[arg(long, value_name = "FILE")]
    admin_tls_cert: Option<PathBuf>,
    /// PEM file of the key of that certificate.
    #[arg(long, value_name = "FILE")]
    admin_tls_key: Option<PathBuf>,
    /// PEM file of the CAs of client certificates, which are then required.
    #[arg(long, value_name = "FILE")]
    admin_tls_client_ca: Option<PathBuf>,
    /// Accepted DNS or URI names of client certificates.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    admin_tls_client_san: Vec<String>,
}

impl GrpcTlsFlags {
    pub(super) fn resolve(self) -> Result<Option<TlsSettings>, Problem> {
        let pair = (self.grpc_tls_cert, self.grpc_tls_key);
        resolve(Port::Grpc, pair, self.grpc_tls_client_ca, self.grpc_tls_client_san)
    }
}

impl HttpTlsFlags {
    pub(super) fn resolve(self) -> Result<Option<TlsSettings>, Problem> {
        let pair = (self.http_tls_cert, self.http_tls_key);
        resolve(Port::Http, pair, self.http_tls_client_ca, self.http_tls_client_san)
    }
}

impl AdminTlsFlags {
    pub(super) fn resolve(self) -> Result<Option<TlsSettings>, Problem> {
        let pair = (self.admin_tls_cert, self.admin_tls_key);
        resolve(Port::Admin, pair, self.admin_tls_client_ca, self.admin_tls_client_san)
    }
}

/// Resolves the flags of a port. An incomplete set is refused: a port must not be less secure than intended.
fn resolve(
    port: Port,
    pair: (Option<PathBuf>, Option<PathBuf>),
    authorities: Option<PathBuf>,
    names: Vec<String>,
) -> Result<Option<TlsSettings>, Problem> {
    let needs = |flag: &str, other: &str| {
        Problem::new(format!("--{port}-tls-{flag}"), format!("requires --{port}-tls-{other}"))
    };
    let names: Vec<String> = names.into_iter().map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(Problem::new(format!("--{port}-tls-client-san"), "has an empty name; expected NAME,…"));
    }
    let clients = match (authorities, names) {
        (Some(authorities), names) => Some(ClientSettings { authorities, names }),
        (None, names) if names.is_empty() => None,
        (None, _) => return Err(needs("client-san", "client-ca")),
    };
    match (pair, clients) {
        ((Some(certificate), Some(key)), clients) => {
            Ok(Some(TlsSettings { port, certificate, key, clients }))
        }
        ((Some(_), None), _) => Err(needs("cert", "key")),
        ((None, Some(_)), _) => Err(needs("key", "cert")),
        ((None, None), Some(_)) => Err(needs("client-ca", "cert")),
        ((None, None), None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_set_of_flags_is_refused() {
        let file = |name: &str| Some(PathBuf::from(name));
        let names = || vec!["spiffe://mesh/envoy".to_owned()];
        let read = |certificate, key, authorities, names| {
            resolve(Port::Grpc, (certificate, key), authorities, names)
        };
        assert_eq!(read(None, None, None, vec![]), Ok(None));
        let spaced = read(file("c"), file("k"), file("a"), vec!["a".to_owned(), " b ".to_owned()]);
        assert_eq!(spaced.expect("whole").expect("there").clients.expect("clients").names, ["a", "b"]);
        let whole = read(file("c"), file("k"), file("a"), names()).expect("whole").expect("there");
        assert_eq!(whole.clients.expect("clients").names, names());
        for (part, flag) in [
            (read(file("c"), None, None, vec![]), "--grpc-tls-cert"),
            (read(None, file("k"), None, vec![]), "--grpc-tls-key"),
            (read(None, None, file("a"), vec![]), "--grpc-tls-client-ca"),
            (read(file("c"), file("k"), None, names()), "--grpc-tls-client-san"),
            (read(file("c"), file("k"), file("a"), vec![String::new()]), "--grpc-tls-client-san"),
        ] {
            let problem = part.expect_err("refused").to_string();
            assert!(problem.starts_with(&format!("{flag}: ")), "{problem}");
        }
    }
}
