//! Settings of the own region, and of the service between regions.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use tollgate_flags::{Secret, address, files};
use tollgate_serve::net::{ClientSettings, Port, TlsSettings};

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

fn region_tls(text: &str) -> Result<TlsSettings, Secret> {
    let [certificate, key, authorities] =
        files(text).ok_or(Secret("expected CERT,KEY,CA, the files of a certificate, its key and the CAs"))?;
    let clients = Some(ClientSettings { authorities, names: Vec::new() });
    Ok(TlsSettings { port: Port::Region, certificate, key, clients })
}
