//! Lines that travel together.

use std::{io, time::Instant};

use super::socket::{Cut, Socket};
use crate::metrics::Told;

/// A packet that is being filled. What it has is confirmed as soon as it was sent.
#[derive(Debug)]
pub(super) struct Packets<'a> {
    socket: &'a mut Socket,
    until: Instant,
    text: Vec<u8>,
    /// Where each line ends in the text, without its end of line.
    lines: Vec<(usize, Told)>,
    too_long: usize,
}

impl<'a> Packets<'a> {
    /// Packets that may take until then, all of them.
    pub(super) const fn new(socket: &'a mut Socket, until: Instant) -> Self {
        Self { socket, until, text: Vec::new(), lines: Vec::new(), too_long: 0 }
    }

    /// Adds a line, and sends what has no room for it any more.
    ///
    /// # Errors
    /// Of sending. Nothing more is to be added.
    pub(super) fn push(&mut self, line: &str, told: Told) -> io::Result<()> {
        let length = line.len().saturating_add(1);
        if length > self.socket.room() {
            // It would never go.
            told.confirm();
            self.too_long = self.too_long.saturating_add(1);
            return Ok(());
        }
        if self.text.len().saturating_add(length) > self.socket.room() {
            self.send()?;
        }
        self.text.extend_from_slice(line.as_bytes());
        self.lines.push((self.text.len(), told));
        self.text.push(b'\n');
        Ok(())
    }

    /// Sends what is left, and says how many lines were longer than a packet.
    ///
    /// # Errors
    /// Of sending.
    pub(super) fn finish(mut self) -> io::Result<usize> {
        if !self.text.is_empty() {
            self.send()?;
        }
        Ok(self.too_long)
    }

    fn send(&mut self) -> io::Result<()> {
        let sent = self.socket.send(&self.text, self.until);
        let taken = sent.as_ref().map_or_else(|cut| cut.taken, |()| self.text.len());
        // A line of which a part was taken is none to the server.
        for (_, told) in self.lines.drain(..).take_while(|(end, _)| *end <= taken) {
            told.confirm();
        }
        self.text.clear();
        sent.map_err(|Cut { error, .. }| error)
    }
}
