//! Packs lines into packets, and sends these over a socket: UDP, TCP or unix datagrams.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use tollgate_metrics::Receipt;

use super::settings::Target;

/// A packet being filled. Its deltas are confirmed once it is sent.
#[derive(Debug)]
pub(super) struct Packets<'a> {
    socket: &'a mut Socket,
    until: Instant,
    text: Vec<u8>,
    /// End of each line in the text, without its line feed.
    lines: Vec<(usize, Receipt)>,
    too_long: usize,
}

impl<'a> Packets<'a> {
    /// Packets that are all sent before `until`.
    pub(super) const fn new(socket: &'a mut Socket, until: Instant) -> Self {
        Self { socket, until, text: Vec::new(), lines: Vec::new(), too_long: 0 }
    }

    /// Adds a line; sends the packet first if it has no room.
    ///
    /// # Errors
    /// If sending fails. No further line may be added.
    pub(super) fn push(&mut self, line: &str, receipt: Receipt) -> io::Result<()> {
        let length = line.len() + 1;
        if length > self.socket.max_packet_bytes() {
            // It would never fit.
            receipt.confirm();
            self.too_long += 1;
            return Ok(());
        }
        if self.text.len() + length > self.socket.max_packet_bytes() {
            self.send()?;
        }
        self.text.extend_from_slice(line.as_bytes());
        self.lines.push((self.text.len(), receipt));
        self.text.push(b'\n');
        Ok(())
    }

    /// Sends the last packet and returns the number of lines longer than a packet.
    ///
    /// # Errors
    /// If sending fails.
    pub(super) fn finish(mut self) -> io::Result<usize> {
        if !self.text.is_empty() {
            self.send()?;
        }
        Ok(self.too_long)
    }

    fn send(&mut self) -> io::Result<()> {
        let (accepted, sent) = self.socket.send(&self.text, self.until);
        // The server ignores a line that it received in part.
        for (_, receipt) in self.lines.drain(..).take_while(|(end, _)| *end <= accepted) {
            receipt.confirm();
        }
        self.text.clear();
        sent
    }
}

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

    /// Sends a packet of lines, each with a line feed. Returns the number of bytes that the operating system accepted, with an
    /// error unless these are all.
    pub(super) fn send(&mut self, packet: &[u8], until: Instant) -> (usize, io::Result<()>) {
        let datagram = packet.strip_suffix(b"\n").unwrap_or(packet);
        let sent = match self {
            Self::Udp(socket) => send_udp(socket, datagram, until),
            Self::Unix(socket) => send_unix(socket, datagram, until),
            Self::Tcp(stream) => return send_tcp(stream, packet, until),
        };
        (if sent.is_ok() { packet.len() } else { 0 }, sent)
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

fn send_tcp(stream: &mut TcpStream, packet: &[u8], until: Instant) -> (usize, io::Result<()>) {
    let mut accepted = 0_usize;
    while let Some(rest @ [_, ..]) = packet.get(accepted..) {
        let written = left(until)
            .and_then(|left| stream.set_write_timeout(Some(left)))
            .and_then(|()| stream.write(rest));
        match written {
            Ok(0) => return (accepted, Err(ErrorKind::WriteZero.into())),
            Ok(written) => accepted += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (accepted, Err(error)),
        }
    }
    (accepted, Ok(()))
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
    use std::net::{TcpListener, UdpSocket};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::{io::Read as _, thread, time::Duration};

    use crate::statsd::Target;

    use super::*;

    fn line(number: usize) -> String {
        format!("{}{number}:1|c", "x".repeat(200))
    }

    #[test]
    fn of_a_partly_accepted_packet_only_the_accepted_lines_are_confirmed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = Target::Tcp(listener.local_addr().expect("a port").to_string());
        let until = Instant::now() + Duration::from_millis(500);
        let (mut socket, confirmed) =
            (Socket::open(&target, 0, until).expect("it listens"), Arc::<AtomicU64>::default());
        let mut packets = Packets::new(&mut socket, until);
        // Until the buffers of the server, which reads nothing, are full.
        let pushed =
            (0..).find(|number| packets.push(&line(*number), Receipt::counted_by(&confirmed)).is_err());
        drop(socket);
        let mut text = String::new();
        listener.accept().expect("a connection").0.read_to_string(&mut text).expect("a text");
        let whole = text.split('\n').enumerate().filter(|(number, text)| *text == line(*number)).count();
        assert!(whole > 100 && pushed.is_some_and(|pushed| whole <= pushed), "{whole} of {pushed:?}");
        assert_eq!(confirmed.load(Ordering::Relaxed), whole as u64);
    }

    #[test]
    fn a_line_longer_than_a_packet_does_not_block_others() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let target = Target::Udp(server.local_addr().expect("a port").to_string());
        let until = Instant::now() + Duration::from_secs(20);
        let (mut socket, confirmed) =
            (Socket::open(&target, 0, until).expect("a socket"), Arc::<AtomicU64>::default());
        let mut packets = Packets::new(&mut socket, until);
        for line in ["a:1|c".to_owned(), "x".repeat(1_432), "y".repeat(1_431), "b:2|c".to_owned()] {
            packets.push(&line, Receipt::counted_by(&confirmed)).expect("sent");
        }
        assert_eq!(packets.finish().expect("sent"), 1);
        let mut buffer = [0; 2_000];
        let mut received = || server.recv(&mut buffer).map(|length| buffer[..length].to_vec()).expect("sent");
        assert_eq!(received(), b"a:1|c");
        assert_eq!(received(), "y".repeat(1_431).as_bytes());
        assert_eq!(received(), b"b:2|c");
        assert_eq!(confirmed.load(Ordering::Relaxed), 4);
    }

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
        let (accepted, sent) = socket.send(b"a:1|c\n", deadline());
        assert_eq!((accepted, sent.map_err(|error| error.kind())), (0, Err(ErrorKind::ConnectionRefused)));
    }

    #[test]
    fn a_server_that_reads_nothing_does_not_block_and_accepted_bytes_are_known() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = Target::Tcp(listener.local_addr().expect("a port").to_string());
        let mut socket = Socket::open(&target, 0, deadline()).expect("it listens");
        let (started, packet) = (Instant::now(), vec![b'x'; 64 << 20]);
        let (accepted, sent) = socket.send(&packet, deadline());
        assert!(sent.is_err() && accepted > 0 && accepted < packet.len(), "{accepted}");
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
