//! Sockets to a StatsD server: UDP, TCP and unix datagrams.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use super::target::Target;

/// Maximum UDP datagram: fits into an Ethernet frame with room for tunnels.
const MAX_UDP_BYTES: usize = 1_432;

/// Maximum packet on a unix socket or with TCP.
const MAX_PACKET_BYTES: usize = 8 << 10;

/// A connected socket.
#[derive(Debug)]
pub(super) enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Tcp(TcpStream),
}

/// A packet that was not sent, or only in part.
#[derive(Debug)]
pub(super) struct SendError {
    /// Bytes that the operating system accepted.
    pub(super) accepted: usize,
    pub(super) error: io::Error,
}

impl Socket {
    /// Resolves the server and connects to it; a datagram socket as well, so that it learns of a closed port. With UDP, where
    /// connecting proves nothing, each failure so far (`attempt`) advances to the next address.
    pub(super) fn open(target: &Target, attempt: usize, until: Instant) -> io::Result<Self> {
        match target {
            Target::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Ok(Self::Unix(socket))
            }
            Target::Udp(server) => {
                let addresses = rotated(server.to_socket_addrs()?.collect(), attempt);
                open_first(addresses, |address, _| udp(address).map(Self::Udp))
            }
            Target::Tcp(server) => open_first(server.to_socket_addrs()?.collect(), |address, others| {
                let stream = TcpStream::connect_timeout(&address, share(left(until)?, others))?;
                // A packet is written at once.
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }),
        }
    }

    /// Whether the socket can be used at the next interval. Datagram sockets are opened anew, so that a server that moved is
    /// found.
    pub(super) fn is_reusable(&self) -> bool {
        match self {
            Self::Udp(_) | Self::Unix(_) => false,
            Self::Tcp(stream) => is_open(stream),
        }
    }

    /// Maximum size of a packet in bytes.
    pub(super) const fn max_packet_bytes(&self) -> usize {
        match self {
            Self::Udp(_) => MAX_UDP_BYTES,
            Self::Unix(_) | Self::Tcp(_) => MAX_PACKET_BYTES,
        }
    }

    /// Sends a packet of lines, each with a line feed.
    pub(super) fn send(&mut self, packet: &[u8], until: Instant) -> Result<(), SendError> {
        let datagram = packet.strip_suffix(b"\n").unwrap_or(packet);
        let sent = match self {
            Self::Udp(socket) => send_udp(socket, datagram, until),
            Self::Unix(socket) => send_unix(socket, datagram, until),
            Self::Tcp(stream) => return send_tcp(stream, packet, until),
        };
        sent.map_err(|error| SendError { accepted: 0, error })
    }
}

/// Addresses of a host, rotated by `attempt`. IPv4 first, as most agents listen there.
fn rotated(mut addresses: Vec<SocketAddr>, attempt: usize) -> Vec<SocketAddr> {
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let at = attempt.checked_rem(addresses.len()).unwrap_or_default();
    addresses.rotate_left(at);
    addresses
}

/// Time limit for one address, which leaves as much for each of `others`.
fn share(left: Duration, others: usize) -> Duration {
    let all = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
    left.checked_div(all).unwrap_or(left).max(Duration::from_millis(1))
}

/// Opens the first usable address; `open` also receives the number of addresses after it.
fn open_first<T>(
    addresses: Vec<SocketAddr>,
    open: impl Fn(SocketAddr, usize) -> io::Result<T>,
) -> io::Result<T> {
    let mut latest = io::Error::new(ErrorKind::NotFound, "the host has no address");
    let mut others = addresses.len();
    for address in addresses {
        others = others.saturating_sub(1);
        match open(address, others) {
            Ok(opened) => return Ok(opened),
            Err(error) => latest = error,
        }
    }
    Err(latest)
}

fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

fn send_udp(socket: &UdpSocket, datagram: &[u8], until: Instant) -> io::Result<()> {
    socket.set_write_timeout(Some(left(until)?))?;
    whole(datagram, socket.send(datagram)?)?;
    // On the same machine, a closed port is known by now.
    socket.take_error()?.map_or(Ok(()), Err)
}

fn send_unix(socket: &UnixDatagram, datagram: &[u8], until: Instant) -> io::Result<()> {
    socket.set_write_timeout(Some(left(until)?))?;
    whole(datagram, socket.send(datagram)?)
}

fn whole(datagram: &[u8], sent: usize) -> io::Result<()> {
    if sent == datagram.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

fn send_tcp(stream: &mut TcpStream, packet: &[u8], until: Instant) -> Result<(), SendError> {
    let mut accepted = 0_usize;
    loop {
        let rest = packet.get(accepted..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        let written = left(until)
            .and_then(|left| stream.set_write_timeout(Some(left)))
            .and_then(|()| stream.write(rest));
        match written {
            Ok(0) => return Err(SendError { accepted, error: ErrorKind::WriteZero.into() }),
            Ok(written) => accepted = accepted.saturating_add(written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(SendError { accepted, error }),
        }
    }
}

/// Whether the other side has not closed the connection, found by reading: a StatsD server sends nothing else.
fn is_open(stream: &TcpStream) -> bool {
    /// Reads of unexpected data before the peer counts as broken.
    const MAX_READS: usize = 16;

    let (mut ignored, mut reader) = ([0; 1 << 10], stream);
    let mut is_quiet = || match reader.read(&mut ignored) {
        Ok(0) => Some(false),
        Ok(_) => None,
        Err(error) => Some(error.kind() == ErrorKind::WouldBlock),
    };
    let found = stream.set_nonblocking(true).ok().and_then(|()| (0..MAX_READS).find_map(|_| is_quiet()));
    found.unwrap_or(false) && stream.set_nonblocking(false).is_ok()
}

/// Time until `until`.
fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    fn deadline() -> Instant {
        Instant::now() + Duration::from_millis(300)
    }

    #[test]
    fn addresses_of_a_host_are_rotated_and_share_the_time() {
        let all = ["[::1]:1", "127.0.0.1:1", "[::2]:1"].map(|text| text.parse().expect("an address"));
        let first = |attempt| rotated(all.to_vec(), attempt).first().map(ToString::to_string);
        let firsts: Vec<_> = (0..4).filter_map(first).collect();
        assert_eq!(firsts, ["127.0.0.1:1", "[::1]:1", "[::2]:1", "127.0.0.1:1"]);
        assert_eq!(rotated(Vec::new(), 7), []);
        let second = Duration::from_secs(1);
        assert_eq!([0, 3].map(|others| share(second, others)), [second, Duration::from_millis(250)]);
        let opened = open_first(all.to_vec(), |address, others| match others {
            0 => Ok(address),
            _ => Err(ErrorKind::TimedOut.into()),
        });
        assert_eq!(opened.ok(), Some(all[2]));
    }

    #[test]
    fn a_closed_udp_port_is_detected_at_once() {
        let port =
            UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let target = Target::Udp(format!("127.0.0.1:{port}"));
        let mut socket = Socket::open(&target, 0, deadline()).expect("a socket");
        let failed = socket.send(b"a:1|c\n", deadline()).expect_err("no listener");
        assert_eq!((failed.accepted, failed.error.kind()), (0, ErrorKind::ConnectionRefused));
    }

    #[test]
    fn a_server_that_reads_nothing_does_not_block_and_accepted_bytes_are_known() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = Target::Tcp(listener.local_addr().expect("a port").to_string());
        let mut socket = Socket::open(&target, 0, deadline()).expect("it listens");
        let (started, packet) = (Instant::now(), vec![b'x'; 64 << 20]);
        let failed = socket.send(&packet, deadline()).expect_err("more than the buffers hold");
        assert!(failed.accepted > 0 && failed.accepted < packet.len(), "{}", failed.accepted);
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_connection_is_reused_until_the_other_side_closes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = Target::Tcp(listener.local_addr().expect("a port").to_string());
        let socket = Socket::open(&target, 0, deadline()).expect("it listens");
        let (mut server, _) = listener.accept().expect("a connection");
        server.write_all(b"hello").expect("it is open");
        assert!(socket.is_reusable());
        drop(server);
        let deadline = Instant::now() + Duration::from_secs(20);
        while socket.is_reusable() {
            assert!(Instant::now() < deadline, "the close is not detected");
            thread::yield_now();
        }
    }
}
