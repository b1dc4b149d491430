//! The signals that end the process: those that the reference hears.

use std::io;

use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
};

/// Hears SIGTERM, SIGINT and SIGHUP.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGTERM
    Terminate,
    /// SIGINT
    Interrupt,
    /// SIGHUP
    HangUp,
}

impl Stop {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::HangUp => "SIGHUP",
        }
    }

    /// What a shell reports for a process that the signal ended: 128 plus its number.
    pub(super) const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 143,
            Self::Interrupt => 130,
            Self::HangUp => 129,
        }
    }
}

impl Signals {
    /// From now on the signals do nothing by themselves.
    pub(super) fn hear() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Stop {
        select! {
            _ = self.terminate.recv() => Stop::Terminate,
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.hang_up.recv() => Stop::HangUp,
        }
    }
}
