//! Settings of regions that enforce limits together.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{
    error::Problem,
    parsers::address,
    tls::{ClientSettings, Port, TlsSettings},
};

/// Own region, and the table of all regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSettings {
    /// Name of the own region.
    pub name: String,
    /// File of the region table.
    pub table: PathBuf,
    /// Service between regions, if this instance has part in it.
    pub peers: Option<PeerSettings>,
}

/// Service between regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Address of its port.
    pub address: SocketAddr,
    /// TLS of the port and of connections to other regions.
    pub tls: TlsSettings,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Regions")]
pub(super) struct RegionFlags {
    /// Name of this instance's region in the table of --regions.
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// YAML file with the regions that enforce limits together (`scope: global`, `scope: primary`), and their weights. Read
    /// again when it changes; an invalid table, or one whose generation is not higher, does not replace the active one.
    #[arg(long, value_name = "FILE")]
    regions: Option<PathBuf>,
    /// Address of the service between regions. Without it, the instance takes no part in changes of weights: a raised share
    /// applies after a restart.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    region_address: Option<SocketAddr>,
    /// PEM file of the certificate chain of that service, for its port and for connections to other regions. It has the
    /// region's `certificate_name`.
    #[arg(long, value_name = "FILE")]
    region_tls_cert: Option<PathBuf>,
    /// PEM file of the key of that certificate.
    #[arg(long, value_name = "FILE")]
    region_tls_key: Option<PathBuf>,
    /// PEM file of the CAs of the certificates of all regions.
    #[arg(long, value_name = "FILE")]
    region_tls_ca: Option<PathBuf>,
}

impl RegionFlags {
    pub(super) fn resolve(self) -> Result<Option<RegionSettings>, Problem> {
        let files = (self.region_tls_cert, self.region_tls_key, self.region_tls_ca);
        let peers = match (self.region_address, files) {
            (None, (None, None, None)) => None,
            (Some(address), (Some(certificate), Some(key), Some(authorities))) => {
                let clients = Some(ClientSettings { authorities, names: Vec::new() });
                let tls = TlsSettings { port: Port::Region, certificate, key, clients };
                Some(PeerSettings { address, tls })
            }
            (Some(_), _) => {
                let needed = "requires --region-tls-cert, --region-tls-key and --region-tls-ca";
                return Err(Problem::new("--region-address", needed));
            }
            (None, _) => return Err(Problem::new("--region-tls-cert", "requires --region-address")),
        };
        match (self.region, self.regions) {
            (Some(name), Some(table)) => Ok(Some(RegionSettings { name, table, peers })),
            _ if peers.is_some() => Err(Problem::new("--region-address", "requires --regions")),
            (Some(_), None) => Err(Problem::new("--region", "requires --regions")),
            (None, Some(_)) => Err(Problem::new("--regions", "requires --region")),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(name: Option<&str>, file: Option<&str>) -> RegionFlags {
        RegionFlags {
            region: name.map(str::to_owned),
            regions: file.map(PathBuf::from),
            region_address: None,
            region_tls_cert: None,
            region_tls_key: None,
            region_tls_ca: None,
        }
    }

    #[test]
    fn the_service_between_regions_requires_mutual_tls() {
        let whole = || RegionFlags {
            region_address: Some("127.0.0.1:8444".parse().expect("an address")),
            region_tls_cert: Some("c".into()),
            region_tls_key: Some("k".into()),
            region_tls_ca: Some("a".into()),
            ..flags(Some("us"), Some("f"))
        };
        let peers = whole().resolve().expect("whole").expect("a region").peers.expect("a service");
        assert_eq!(peers.tls.clients.expect("mutual").authorities, PathBuf::from("a"));
        for part in [
            RegionFlags { region_tls_cert: None, ..whole() },
            RegionFlags { region_tls_key: None, ..whole() },
            RegionFlags { region_tls_ca: None, ..whole() },
            RegionFlags { region: None, regions: None, ..whole() },
        ] {
            assert!(part.resolve().unwrap_err().to_string().starts_with("--region-address: requires"));
        }
        let part = RegionFlags { region_address: None, ..whole() };
        assert!(part.resolve().unwrap_err().to_string().starts_with("--region-tls-cert: requires"));
    }

    #[test]
    fn a_region_and_its_table_require_each_other() {
        let resolve = |name: Option<&str>, file: Option<&str>| flags(name, file).resolve();
        assert_eq!(resolve(None, None), Ok(None));
        assert!(resolve(Some("us"), Some("regions.yaml")).is_ok_and(|settings| settings.is_some()));
        assert!(resolve(Some("us"), None).unwrap_err().to_string().starts_with("--region: requires"));
        assert!(resolve(None, Some("f")).unwrap_err().to_string().starts_with("--regions: requires"));
    }
}
