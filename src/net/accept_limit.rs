//! What a port says of connections that it cannot take: a line for each change, not for each connection.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{metrics, settings::Port};

/// Before the operating system is asked again that had nothing to give.
const PAUSE: Duration = Duration::from_millis(50);

/// Without a failure for so long, it is over: single descriptors come free all the time.
const CALM: Duration = Duration::from_secs(1);

/// Looks after the number of a port's connections.
#[derive(Debug)]
pub(crate) struct Gate {
    port: Port,
    /// Connections at most.
    max: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Full,
    /// The operating system gave none, last at that time.
    Failing(Instant),
}

impl Gate {
    pub(crate) const fn new(port: Port, max: usize) -> Self {
        Self { port, max, state: State::Open }
    }

    /// Whether a connection may come in beside the `live` ones; one that may not is to be closed.
    pub(crate) fn admits(&mut self, live: usize) -> bool {
        if live >= self.max {
            metrics::connection_refused(self.port.name());
            if self.state != State::Full {
                self.state = State::Full;
                tracing::warn!("the {} port has {live} connections, and closes new ones at once", self.port);
            }
            return false;
        }
        // Not with the first place that comes free, which may be taken at once, and so on.
        let has_room = live <= self.max.saturating_sub(self.max.div_ceil(10));
        let is_over = match self.state {
            State::Open => false,
            State::Full => has_room,
            State::Failing(last) => last.elapsed() > CALM,
        };
        if is_over {
            self.state = State::Open;
            tracing::info!("the {} port takes connections again", self.port);
        }
        true
    }

    /// Hears that the operating system has no connection to give, and waits as long as makes sense before it is asked
    /// again.
    pub(crate) async fn failed(&mut self, error: &io::Error) {
        // The client changed its mind, which says nothing of others.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        let before = std::mem::replace(&mut self.state, State::Failing(Instant::now()));
        if !matches!(before, State::Failing(_)) {
            tracing::warn!("the {} port cannot accept connections: {error}", self.port);
        }
        // Most likely out of file descriptors, which does not change within microseconds.
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_open_up_to_its_bound_and_again_once_there_is_room_to_spare() {
        let mut gate = Gate::new(Port::Grpc, 20);
        assert!(gate.admits(19));
        assert!(!gate.admits(20));
        assert_eq!(gate.state, State::Full);
        // This one is taken, but may be the last one for now.
        assert!(gate.admits(19));
        assert_eq!(gate.state, State::Full);
        assert!(gate.admits(18));
        assert_eq!(gate.state, State::Open);
        gate.failed(&io::ErrorKind::ConnectionAborted.into()).await;
        assert_eq!(gate.state, State::Open);
        gate.failed(&io::Error::other("no descriptors")).await;
        let State::Failing(last) = gate.state else { panic!("{gate:?}") };
        assert!(gate.admits(5));
        assert_eq!(gate.state, State::Failing(last), "it may fail again");
        gate.state = State::Failing(last - CALM * 2);
        assert!(gate.admits(5));
        assert_eq!(gate.state, State::Open);
        // The smallest bound lets one in.
        let mut gate = Gate::new(Port::Grpc, 1);
        assert!(gate.admits(0));
        assert!(!gate.admits(1));
    }
}
