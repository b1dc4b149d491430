//! A proxy in front of a server, which tests can disturb while it is used.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::sync::Mutex;

use super::prelude::*;

/// The interval at which a direction reads its mode.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The mode of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Hands it on.
    Open,
    /// Hands it on later.
    Slow(Duration),
    /// Keeps it, and the connection open, until the way is another one.
    Silent,
    /// Forwards this many bytes, and then closes the connection in the middle of a reply.
    CutAfter(usize),
}

/// The directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

#[derive(Debug)]
struct ProxyState {
    ways: Mutex<[Way; 2]>,
    /// The connections that may be there, each by its client's end and its server's.
    pairs: Mutex<Vec<[TcpStream; 2]>>,
}

/// A proxy on a port of its own. Its threads end with their connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<ProxyState>,
}

impl Proxy {
    /// Hands connections on to a port of this machine.
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let ways = Mutex::new([Way::Open; 2]);
        let shared = Arc::new(ProxyState { ways, pairs: Mutex::default() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                // A server that is not there refuses, and so does this.
                let pair = client.and_then(|client| Ok([client, connect(server)?]));
                let _ = pair.and_then(|pair| accepting.carry(pair));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Has one direction of all connections, those to come included, be so.
    pub(crate) fn set(&self, direction: Direction, way: Way) {
        self.shared.ways.lock().expect("no panic")[direction as usize] = way;
    }

    /// Has both directions be so.
    pub(crate) fn set_both(&self, way: Way) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.set(direction, way);
        }
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.end(Shutdown::Both);
    }

    /// Ends what the server sends, on all connections; what the clients send goes on.
    pub(crate) fn half_close(&self) {
        self.end(Shutdown::Write);
    }

    fn end(&self, how: Shutdown) {
        for [client, _] in self.shared.pairs.lock().expect("no panic").drain(..) {
            let _ = client.shutdown(how);
        }
    }
}

fn connect(server: u16) -> io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, server))
}

impl ProxyState {
    fn carry(self: &Arc<Self>, [client, server]: [TcpStream; 2]) -> io::Result<()> {
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        let both = |stream: &TcpStream| Ok::<_, io::Error>([stream.try_clone()?, stream.try_clone()?]);
        let ([from_client, to_client], [from_server, to_server]) = (both(&client)?, both(&server)?);
        self.pairs.lock().expect("no panic").push([client, server]);
        for (direction, from, to) in
            [(Direction::ToServer, from_client, to_server), (Direction::ToClient, from_server, to_client)]
        {
            let shared = Arc::clone(self);
            thread::spawn(move || {
                let _ = shared.pump(direction, &from, &to);
                let _ = to.shutdown(Shutdown::Write);
                let _ = from.shutdown(Shutdown::Read);
            });
        }
        Ok(())
    }

    fn way(&self, direction: Direction) -> Way {
        self.ways.lock().expect("no panic")[direction as usize]
    }

    fn pump(&self, direction: Direction, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut bytes = [0; 65_536];
        loop {
            let length = from.read(&mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            let came = Instant::now();
            while match self.way(direction) {
                Way::Silent => true,
                Way::Slow(delay) => came.elapsed() < delay,
                Way::Open | Way::CutAfter(_) => false,
            } {
                thread::sleep(POLL_INTERVAL);
            }
            match self.way(direction) {
                Way::CutAfter(rest) if rest < length => {
                    to.write_all(&bytes[..rest])?;
                    from.shutdown(Shutdown::Both)?;
                    return to.shutdown(Shutdown::Both);
                }
                _ => to.write_all(&bytes[..length])?,
            }
        }
    }
}
