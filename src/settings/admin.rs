//! The admin port.

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

/// Where operators look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Where to listen.
    pub address: SocketAddr,
    /// File with the tokens, of which every request has to show one.
    pub token_file: Option<PathBuf>,
    /// The TLS of the port.
    pub tls: Option<TlsSettings>,
}

impl AdminSettings {
    /// Whether clients have to show certificates.
    pub fn knows_clients(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.clients.is_some())
    }

    /// Whether it is where it is when nobody says otherwise.
    pub fn is_default(&self) -> bool {
        self.address == DEFAULT
    }
}

/// The reference's debug port, for this machine alone.
const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6070);

#[derive(Args, Debug)]
#[command(next_help_heading = "Admin")]
pub(super) struct AdminFlags {
    /// Address of the admin side: the dashboard, /api/v1, /rlconfig, /metrics, /healthcheck; or `off`. One that others can
    /// reach needs tokens or clients' certificates.
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value = "127.0.0.1:6070", value_parser = listen)]
    admin_address: Listen,
    /// File with the tokens that requests then have to show (`Authorization: Bearer …`), each of 16 bytes or more: lines
    /// `NAME ROLE TOKEN`, where the role is viewer or operator, or one token alone, an operator's. Read again when it
    /// changes.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Keep track of the keys that ask the most and that are denied the most, as a bounded sketch.
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
        let knows_clients = tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        let is_reachable = !address.ip().to_canonical().is_loopback();
        if is_reachable && !knows_clients && self.admin_token_file.is_none() {
            return Err(Problem::new(
                "--admin-address",
                "only this machine may ask without a token or a certificate: expected a loopback address, or \
                 --admin-token-file, or --admin-tls-client-ca with --admin-tls-cert and --admin-tls-key",
            ));
        }
        Ok(Some(AdminSettings { address, token_file: self.admin_token_file, tls }))
    }
}
