//! Settings of the admin port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgAction::Set, Args};
use tollgate_flags::{KeyPair, Problem, address, boolean, key_pair, name};
use tollgate_serve::net::{Port, TlsSettings};

/// Default address of the admin port: the debug port of envoyproxy/ratelimit, on the loopback interface.
const DEFAULT_ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6070);

/// Address of the admin port, unless it is off.
type AdminAddress = Option<SocketAddr>;

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

impl AdminSettings {
    /// TLS of the port.
    pub fn tls(&self) -> Option<TlsSettings> {
        TlsSettings::of_flags(Port::Admin, self.pair.as_ref(), self.client_ca.as_ref(), &self.client_names)
    }

    /// Whether clients must present certificates.
    pub const fn requires_client_certificate(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Whether the address is the default.
    pub fn is_default(&self) -> bool {
        self.address == Some(DEFAULT_ADMIN_ADDRESS)
    }

    /// Checks what concerns several flags.
    ///
    /// # Errors
    /// The flag whose value contradicts another.
    pub fn check(&self) -> Result<(), Problem> {
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

fn unless_off(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        text => address(text).map(Some).map_err(|error| format!("{error}; or off")),
    }
}
