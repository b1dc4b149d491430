//! Settings of the HTTP port, and of the port for metrics only.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use tollgate_flags::{KeyPair, Problem, address, key_pair, name};

use crate::net::{Port, TlsSettings};

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

impl HttpSettings {
    /// TLS of the port.
    pub fn tls(&self) -> Option<TlsSettings> {
        TlsSettings::of_flags(Port::Http, self.pair.as_ref(), self.client_ca.as_ref(), &self.client_names)
    }

    /// Checks what concerns several flags.
    ///
    /// # Errors
    /// The flag whose value contradicts another.
    pub fn check(&self) -> Result<(), Problem> {
        match &self.metrics {
            Some(metrics) if metrics.address.port() != 0 && metrics.address == self.address => {
                Err(Problem::new("--metrics-address", "same as --http-address; expected another port"))
            }
            _ => Ok(()),
        }
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
