//! Settings of the port for metrics only.

use std::net::SocketAddr;

use clap::Args;

use super::{error::Problem, parsers::address};

/// Port for metrics only, besides `/metrics` on the other ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Listen address.
    pub address: SocketAddr,
    /// Path of the metrics; other paths return 404.
    pub path: String,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Process")]
pub(super) struct MetricsFlags {
    /// Address of a port for metrics only, besides /metrics on the other ports.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    metrics_address: Option<SocketAddr>,
    /// Path of the metrics on that port.
    #[arg(long, value_name = "PATH", default_value = "/metrics", value_parser = path)]
    metrics_path: String,
}

impl MetricsFlags {
    pub(super) fn resolve(self, http: SocketAddr) -> Result<Option<MetricsSettings>, Problem> {
        let Some(address) = self.metrics_address else { return Ok(None) };
        if address.port() != 0 && address == http {
            return Err(Problem::new("--metrics-address", "same as --http-address; expected another port"));
        }
        Ok(Some(MetricsSettings { address, path: self.metrics_path }))
    }
}

fn path(text: &str) -> Result<String, String> {
    let is_printable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    match text.starts_with('/') && text.bytes().all(is_printable) {
        true => Ok(text.to_owned()),
        false => Err("expected a path such as /metrics".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_a_slash_and_has_no_query() {
        assert!(["/", "/metrics", "/a/b.c"].into_iter().all(|text| path(text).is_ok()));
        assert!(["", "metrics", "/a?b", "/a b", "/#"].into_iter().all(|text| path(text).is_err()));
    }
}
