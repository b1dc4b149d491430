//! How a TCP port is opened.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpListener;

/// Listens on an address. Where the machine has no IPv6, all of its addresses are those of IPv4: `[::]` is what is
/// written for all of them by those who run on either.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) => match instead(address, error.kind()) {
            Some(other) => {
                let listener = TcpListener::bind(other).await.map_err(|_| error)?;
                tracing::info!("there is no IPv6 for {address}: {other} in its place");
                Ok(listener)
            }
            None => Err(error),
        },
        listener => listener,
    }
}

/// What to try where the address could not be had.
fn instead(address: SocketAddr, error: io::ErrorKind) -> Option<SocketAddr> {
    let is_taken = matches!(error, io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied);
    let is_any = address.is_ipv6() && address.ip().is_unspecified();
    (is_any && !is_taken).then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_those_of_ipv4_where_there_is_no_ipv6() {
        let of = |text: &str, error| instead(text.parse().expect("an address"), error);
        let any = Some("0.0.0.0:80".parse().expect("an address"));
        assert_eq!(of("[::]:80", io::ErrorKind::AddrNotAvailable), any);
        assert_eq!(of("[::]:80", io::ErrorKind::Unsupported), any);
        assert_eq!(of("[::]:80", io::ErrorKind::AddrInUse), None);
        assert_eq!(of("[::]:80", io::ErrorKind::PermissionDenied), None);
        assert_eq!(of("[::1]:80", io::ErrorKind::AddrNotAvailable), None);
        assert_eq!(of("0.0.0.0:80", io::ErrorKind::AddrNotAvailable), None);
    }

    #[tokio::test]
    async fn a_port_that_is_taken_stays_an_error() {
        let first = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.expect("a free port");
        let address = first.local_addr().expect("it listens");
        assert_eq!(listen(address).await.expect_err("taken").kind(), io::ErrorKind::AddrInUse);
    }
}
