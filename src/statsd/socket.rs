//! The way to a server.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use super::target::Target;

/// The largest datagram by UDP: it fits into a frame of Ethernet with room for tunnels.
const UDP_BYTES: usize = 1_432;

/// The largest packet on a unix socket, or by TCP.
const MOST_BYTES: usize = 8 << 10;

/// A server that is there, as far as that can be known.
#[derive(Debug)]
pub(super) enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Tcp(TcpStream),
}

/// A packet that did not go, or not as a whole.
#[derive(Debug)]
pub(super) struct Cut {
    /// How much of it was taken.
    pub(super) taken: usize,
    pub(super) error: io::Error,
}

impl Socket {
    /// Looks the server up, and connects to it; a datagram socket, so that it hears when nobody is there. Of several
    /// addresses it is that whose turn it is, counted in failures so far, where connecting does not show who is there.
    pub(super) fn open(target: &Target, turn: usize, until: Instant) -> io::Result<Self> {
        match target {
            Target::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Ok(Self::Unix(socket))
            }
            Target::Udp(server) => {
                let addresses = in_turn(server.to_socket_addrs()?.collect(), turn);
                first(addresses, |address, _| udp(address).map(Self::Udp))
            }
            Target::Tcp(server) => first(server.to_socket_addrs()?.collect(), |address, others| {
                let stream = TcpStream::connect_timeout(&address, share(left(until)?, others))?;
                // A packet is written at once.
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }),
        }
    }

    /// Whether it can be used again at the next interval. Datagram sockets are opened anew, so that a server is found
    /// that has moved.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            Self::Udp(_) | Self::Unix(_) => false,
            Self::Tcp(stream) => is_open(stream),
        }
    }

    /// The most bytes of a packet.
    pub(super) const fn room(&self) -> usize {
        match self {
            Self::Udp(_) => UDP_BYTES,
            Self::Unix(_) | Self::Tcp(_) => MOST_BYTES,
        }
    }

    /// Sends a packet of lines, each with its end.
    pub(super) fn send(&mut self, packet: &[u8], until: Instant) -> Result<(), Cut> {
        let datagram = packet.strip_suffix(b"\n").unwrap_or(packet);
        let sent = match self {
            Self::Udp(socket) => send_udp(socket, datagram, until),
            Self::Unix(socket) => send_unix(socket, datagram, until),
            Self::Tcp(stream) => return send_tcp(stream, packet, until),
        };
        sent.map_err(|error| Cut { taken: 0, error })
    }
}

/// A host's addresses, beginning with that whose turn it is. Agents are more often found at those of IPv4.
fn in_turn(mut addresses: Vec<SocketAddr>, turn: usize) -> Vec<SocketAddr> {
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let at = turn.checked_rem(addresses.len()).unwrap_or_default();
    addresses.rotate_left(at);
    addresses
}

/// What an address may take of the time that is left, so that something is left for so many others.
fn share(left: Duration, others: usize) -> Duration {
    let all = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
    left.checked_div(all).unwrap_or(left).max(Duration::from_millis(1))
}

/// Opens the first of a host's addresses that can be; each is told how many come after it.
fn first<T>(addresses: Vec<SocketAddr>, open: impl Fn(SocketAddr, usize) -> io::Result<T>) -> io::Result<T> {
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
    // On the same machine it is known by now that nobody listens.
    socket.take_error()?.map_or(Ok(()), Err)
}

fn send_unix(socket: &UnixDatagram, datagram: &[u8], until: Instant) -> io::Result<()> {
    socket.set_write_timeout(Some(left(until)?))?;
    whole(datagram, socket.send(datagram)?)
}

fn whole(datagram: &[u8], sent: usize) -> io::Result<()> {
    if sent == datagram.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

fn send_tcp(stream: &mut TcpStream, packet: &[u8], until: Instant) -> Result<(), Cut> {
    let mut taken = 0_usize;
    loop {
        let rest = packet.get(taken..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        let written = left(until)
            .and_then(|left| stream.set_write_timeout(Some(left)))
            .and_then(|()| stream.write(rest));
        match written {
            Ok(0) => return Err(Cut { taken, error: ErrorKind::WriteZero.into() }),
            Ok(written) => taken = taken.saturating_add(written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Cut { taken, error }),
        }
    }
}

/// Whether the other side has not closed a connection. It has nothing to say, so that this is what there is to read.
fn is_open(stream: &TcpStream) -> bool {
    /// Reads of what nobody asked for, before that is no server.
    const MOST_READS: usize = 16;

    let (mut ignored, mut reader) = ([0; 1 << 10], stream);
    let mut is_quiet = || match reader.read(&mut ignored) {
        Ok(0) => Some(false),
        Ok(_) => None,
        Err(error) => Some(error.kind() == ErrorKind::WouldBlock),
    };
    let found = stream.set_nonblocking(true).ok().and_then(|()| (0..MOST_READS).find_map(|_| is_quiet()));
    found.unwrap_or(false) && stream.set_nonblocking(false).is_ok()
}

/// The time that is left.
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

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(300)
    }

    #[test]
    fn every_address_of_a_host_has_its_turn_and_its_time() {
        let all = ["[::1]:1", "127.0.0.1:1", "[::2]:1"].map(|text| text.parse().expect("an address"));
        let first = |turn| in_turn(all.to_vec(), turn).first().map(ToString::to_string);
        let firsts: Vec<_> = (0..4).filter_map(first).collect();
        assert_eq!(firsts, ["127.0.0.1:1", "[::1]:1", "[::2]:1", "127.0.0.1:1"]);
        assert_eq!(in_turn(Vec::new(), 7), []);
        let second = Duration::from_secs(1);
        assert_eq!([0, 3].map(|others| share(second, others)), [second, Duration::from_millis(250)]);
        let opened = super::first(all.to_vec(), |address, others| match others {
            0 => Ok(address),
            _ => Err(ErrorKind::TimedOut.into()),
        });
        assert_eq!(opened.ok(), Some(all[2]));
    }

    #[test]
    fn a_udp_port_of_nobody_is_heard_of_at_once() {
        let port =
            UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let target = Target::Udp(format!("127.0.0.1:{port}"));
        let mut socket = Socket::open(&target, 0, soon()).expect("a socket");
        let cut = socket.send(b"a:1|c\n", soon()).expect_err("nobody listens");
        assert_eq!((cut.taken, cut.error.kind()), (0, ErrorKind::ConnectionRefused));
    }

    #[test]
    fn a_server_that_reads_nothing_holds_nobody_up_and_what_it_took_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = Target::Tcp(listener.local_addr().expect("a port").to_string());
        let mut socket = Socket::open(&target, 0, soon()).expect("it listens");
        let (begun, packet) = (Instant::now(), vec![b'x'; 64 << 20]);
        let cut = socket.send(&packet, soon()).expect_err("more than anyone takes unread");
        assert!(cut.taken > 0 && cut.taken < packet.len(), "{}", cut.taken);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_connection_is_used_again_until_the_other_side_closes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = Target::Tcp(listener.local_addr().expect("a port").to_string());
        let socket = Socket::open(&target, 0, soon()).expect("it listens");
        let (mut server, _) = listener.accept().expect("a connection");
        server.write_all(b"hello").expect("it is open");
        assert!(socket.is_lasting());
        drop(server);
        let deadline = Instant::now() + Duration::from_secs(20);
        while socket.is_lasting() {
            assert!(Instant::now() < deadline, "nobody notices");
            thread::yield_now();
        }
    }
}
