//! A connection between places far from each other: with delay, loss, and partitions.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::prelude::*;

/// Interval at which what is due is looked at while nothing passes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Time after which TCP sends again what was lost, at least.
const RETRANSMISSION: Duration = Duration::from_millis(200);

/// Pieces on their way in one direction of a connection; then its sender waits, as behind a full window.
const MAX_PIECES: usize = 256;

/// Conditions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Conditions {
    /// The time that a piece takes, in one direction.
    pub(crate) delay: Duration,
    /// The part of the pieces that is lost, and sent again by TCP.
    pub(crate) loss: f64,
    /// Nothing passes, and nothing is closed. What was sent meanwhile arrives once this ends.
    pub(crate) is_cut: bool,
}

/// A proxy that carries connections under its [`Conditions`]. Unlike [`super::proxy::Proxy`], it has many pieces on their
/// way at the same time, as an ocean has. Its threads end with their connections.
#[derive(Debug)]
pub(crate) struct Link {
    port: u16,
    conditions: Arc<Mutex<Conditions>>,
}

impl Link {
    /// Carries connections to a port of this machine.
    pub(crate) fn to(server: u16, conditions: Conditions) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let conditions = Arc::new(Mutex::new(conditions));
        let accepting = Arc::clone(&conditions);
        thread::spawn(move || {
            for client in listener.incoming() {
                // A server that is not there refuses, and so does this.
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server));
                let _ = client.and_then(|client| carry(&client, &server?, &accepting));
            }
        });
        Self { port, conditions }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the link, or heals it.
    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.conditions.lock().expect("no panic").is_cut = is_cut;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The threads of connections that are cut would wait for ever.
        self.set_cut(false);
    }
}

fn carry(client: &TcpStream, server: &TcpStream, conditions: &Arc<Mutex<Conditions>>) -> io::Result<()> {
    for (from, to) in [(client, server), (server, client)] {
        from.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (sender, receiver) = sync_channel(MAX_PIECES);
        let (reading, writing) = (Arc::clone(conditions), Arc::clone(conditions));
        thread::spawn(move || {
            let _ = read(&from, &sender, &reading);
            let _ = from.shutdown(Shutdown::Read);
        });
        thread::spawn(move || {
            let _ = write(&to, &receiver, &writing);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

/// Bytes, and when they arrive.
type Piece = (Instant, Vec<u8>);

fn read(mut from: &TcpStream, sender: &SyncSender<Piece>, conditions: &Mutex<Conditions>) -> io::Result<()> {
    let (mut bytes, mut last) = ([0; 16_384], Instant::now());
    loop {
        let length = from.read(&mut bytes)?;
        let Conditions { delay, loss, .. } = *conditions.lock().expect("no panic");
        let again = if fastrand::f64() < loss { RETRANSMISSION.max(2 * delay) } else { Duration::ZERO };
        // Later pieces wait for one that is sent again.
        last = last.max(Instant::now() + delay + again);
        if length == 0 || sender.send((last, bytes[..length].to_vec())).is_err() {
            return Ok(());
        }
    }
}

fn write(mut to: &TcpStream, receiver: &Receiver<Piece>, conditions: &Mutex<Conditions>) -> io::Result<()> {
    while let Ok((arrives, bytes)) = receiver.recv() {
        thread::sleep(arrives.saturating_duration_since(Instant::now()));
        while conditions.lock().expect("no panic").is_cut {
            thread::sleep(POLL_INTERVAL);
        }
        to.write_all(&bytes)?;
    }
    Ok(())
}
