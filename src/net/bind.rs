//! Opening of TCP ports.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpListener;

/// Listens on an address. On a machine without IPv6, `[::]` falls back to `0.0.0.0`: operators write `[::]` for "all
/// addresses" on either kind of machine.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) => match ipv4_fallback(address, error.kind()) {
            Some(fallback) => {
                let listener = TcpListener::bind(fallback).await.map_err(|_| error)?;
                tracing::info!(%address, %fallback, "no IPv6; listening on IPv4");
                Ok(listener)
            }
            None => Err(error),
        },
        listener => listener,
    }
}

/// Address to try after binding `address` failed.
fn ipv4_fallback(address: SocketAddr, error: io::ErrorKind) -> Option<SocketAddr> {
    let is_taken = matches!(error, io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied);
    let is_any = address.is_ipv6() && address.ip().is_unspecified();
    (is_any && !is_taken).then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wildcard_address_falls_back_to_ipv4_without_ipv6() {
        let of = |text: &str, error| ipv4_fallback(text.parse().expect("an address"), error);
        let any = Some("0.0.0.0:80".parse().expect("an address"));
        assert_eq!(of("[::]:80", io::ErrorKind::AddrNotAvailable), any);
        assert_eq!(of("[::]:80", io::ErrorKind::Unsupported), any);
        assert_eq!(of("[::]:80", io::ErrorKind::AddrInUse), None);
        assert_eq!(of("[::]:80", io::ErrorKind::PermissionDenied), None);
        assert_eq!(of("[::1]:80", io::ErrorKind::AddrNotAvailable), None);
        assert_eq!(of("0.0.0.0:80", io::ErrorKind::AddrNotAvailable), None);
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error() {
        let first = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.expect("a free port");
        let address = first.local_addr().expect("listening");
        assert_eq!(listen(address).await.expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    }
}
