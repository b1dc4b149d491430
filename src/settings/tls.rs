//! TLS of the ports.

use std::{fmt, path::PathBuf};

use clap::Args;

use super::error::Problem;

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The rate-limit service.
    Grpc,
    /// Its JSON twin, health and metrics.
    Http,
    /// What only operators may see.
    Admin,
    /// Metrics alone.
    Metrics,
}

impl Port {
    /// Its name in flags, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }
}

/// The TLS of a port: files, which may change while the process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whose TLS it is.
    pub port: Port,
    /// PEM file of the certificate, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// What clients have to show; nothing if absent.
    pub clients: Option<ClientSettings>,
}

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// PEM file of the authorities that sign the clients' certificates.
    pub authorities: PathBuf,
    /// A certificate has to have one of these as a DNS or URI name. Empty: any certificate will do.
    pub names: Vec<String>,
}

/// One of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The certificate.
    Certificate,
    /// Its key.
    Key,
    /// The clients' authorities.
    Authorities,
}

impl TlsSettings {
    /// The flag that names `file`.
    pub fn flag(&self, file: TlsFile) -> String {
        let what = match file {
            TlsFile::Certificate => "cert",
            TlsFile::Key => "key",
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
    /// PEM file of the gRPC port's certificate, with those that lead to its authority behind it; makes the port TLS.
    /// Read again when it changes, like the other files of TLS.
    #[arg(long, value_name = "FILE")]
    grpc_tls_cert: Option<PathBuf>,
    /// PEM file of that certificate's key.
    #[arg(long, value_name = "FILE")]
    grpc_tls_key: Option<PathBuf>,
    /// PEM file of authorities: clients must show a certificate that one of them signed.
    #[arg(long, value_name = "FILE")]
    grpc_tls_client_ca: Option<PathBuf>,
    /// Names, such as SPIFFE ids: a client's certificate must have one of them, letter for letter, as a DNS or URI
    /// name.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    grpc_tls_client_san: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct HttpTlsFlags {
    /// PEM file of the HTTP port's certificate; makes the port HTTPS.
    #[arg(long, value_name = "FILE")]
    http_tls_cert: Option<PathBuf>,
    /// PEM file of that certificate's key.
    #[arg(long, value_name = "FILE")]
    http_tls_key: Option<PathBuf>,
    /// PEM file of the authorities of clients' certificates, which are then required.
    #[arg(long, value_name = "FILE")]
    http_tls_client_ca: Option<PathBuf>,
    /// Names of which a client's certificate must have one.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    http_tls_client_san: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct AdminTlsFlags {
    /// PEM file of the admin port's certificate; makes the port HTTPS.
    #[arg(long, value_name = "FILE")]
    admin_tls_cert: Option<PathBuf>,
    /// PEM file of that certificate's key.
    #[arg(long, value_name = "FILE")]
    admin_tls_key: Option<PathBuf>,
    /// PEM file of the authorities of clients' certificates, which are then required.
    #[arg(long, value_name = "FILE")]
    admin_tls_client_ca: Option<PathBuf>,
    /// Names of which a client's certificate must have one.
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

/// What is said in part is refused: a port must never be less safe than someone meant it to be.
fn resolve(
    port: Port,
    pair: (Option<PathBuf>, Option<PathBuf>),
    authorities: Option<PathBuf>,
    names: Vec<String>,
) -> Result<Option<TlsSettings>, Problem> {
    let needs = |flag: &str, other: &str| {
        Problem::new(format!("--{port}-tls-{flag}"), format!("needs --{port}-tls-{other}"))
    };
    let names: Vec<String> = names.into_iter().map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(Problem::new(format!("--{port}-tls-client-san"), "expected no empty name"));
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
    fn what_is_said_in_part_is_refused() {
        let file = |name: &str| Some(PathBuf::from(name));
        let names = || vec!["spiffe://mesh/envoy".to_owned()];
        let read = |certificate, key, authorities, names| {
            resolve(Port::Grpc, (certificate, key), authorities, names)
        };
        assert_eq!(read(None, None, None, vec![]), Ok(None));
        let spaced = read(file("c"), file("k"), file("a"), vec!["a".to_owned(), " b ".to_owned()]);
        assert_eq!(spaced.expect("whole").expect("there").clients.expect("told").names, ["a", "b"]);
        let whole = read(file("c"), file("k"), file("a"), names()).expect("whole").expect("there");
        assert_eq!(whole.clients.expect("told").names, names());
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
