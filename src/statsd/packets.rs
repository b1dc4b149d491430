//! Packs lines into packets.

use std::{io, time::Instant};

use tollgate_metrics::Receipt;

use super::socket::{SendError, Socket};

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
        let length = line.len().saturating_add(1);
        if length > self.socket.max_packet_bytes() {
            // It would never fit.
            receipt.confirm();
            self.too_long = self.too_long.saturating_add(1);
            return Ok(());
        }
        if self.text.len().saturating_add(length) > self.socket.max_packet_bytes() {
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
        let sent = self.socket.send(&self.text, self.until);
        let accepted = sent.as_ref().map_or_else(|error| error.accepted, |()| self.text.len());
        // The server ignores a line that it received in part.
        for (_, receipt) in self.lines.drain(..).take_while(|(end, _)| *end <= accepted) {
            receipt.confirm();
        }
        self.text.clear();
        sent.map_err(|SendError { error, .. }| error)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::{TcpListener, UdpSocket},
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use super::*;
    use crate::statsd::Target;

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
}
