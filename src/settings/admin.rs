//! Settings of the admin port.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clap::{ArgAction, Args};

use super::{
    error::Problem,
    parsers::{address, boolean},
    tls::{AdminTlsFlags, TlsSettings},
};

/// Admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Listen address.
    pub address: SocketAddr,
    /// File with the tokens that requests must present.
    pub token_file: Option<PathBuf>,
    /// TLS of the port.
    pub tls: Option<TlsSettings>,
}

impl AdminSettings {
    /// Whether clients must present certificates.
    pub fn requires_client_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.clients.is_some())
    }

    /// Whether the address is the default.
    pub fn is_default(&self) -> bool {
        self.address == DEFAULT_ADDRESS
    }
}

/// Default address: the debug port of envoyproxy/ratelimit, on the loopback interface.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6070);

#[derive(Args, Debug)]
#[command(next_help_heading = "Admin")]
pub(super) struct AdminFlags {
    /// Address of the admin port: the dashboard, /api/v1, /rlconfig, /metrics, /healthcheck; or `off`. An address that is
    /// not a loopback address requires tokens or client certificates.
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value = "127.0.0.1:6070", value_parser = listen)]
    admin_address: Listen,
    /// File with the tokens that requests must present (`Authorization: Bearer …`), each of 16 bytes or more: lines
    /// `NAME ROLE TOKEN`, where the role is viewer or operator, or a single operator token. Reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Sampling of top talkers: the keys with the most requests and denials, in bounded memory.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    pub(super) top_talkers: bool,
    #[command(flatten)]
    tls: AdminTlsFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listen {
    Off,
    At(SocketAddr),
}

fn listen(text: &str) -> Result<Listen, String> {
    match text {
        "off" => Ok(Listen::Off),
        text => address(text).map(Listen::At).map_err(|error| format!("{error}; or off")),
    }
}

impl AdminFlags {
    pub(super) fn resolve(self) -> Result<Option<AdminSettings>, Problem> {
        let tls = self.tls.resolve()?;
        let Listen::At(address) = self.admin_address else { return Ok(None) };
        let requires_client_certificate = tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        let is_reachable = !address.ip().to_canonical().is_loopback();
        if is_reachable && !requires_client_certificate && self.admin_token_file.is_none() {
            return Err(Problem::new(
                "--admin-address",
                "reachable from other machines without authentication; expected a loopback address, \
                 --admin-token-file, or --admin-tls-client-ca with --admin-tls-cert and --admin-tls-key",
            ));
        }
        Ok(Some(AdminSettings { address, token_file: self.admin_token_file, tls }))
    }
}
