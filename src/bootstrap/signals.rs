//! Signals: SIGTERM and SIGINT stop the process, and SIGHUP makes it read its rules again.

use std::io;

use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
};

/// Receiver of SIGTERM, SIGINT and SIGHUP.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSignal {
    Terminate,
    Interrupt,
}

impl StopSignal {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    /// Exit status that a shell reports for a process ended by the signal: 128 plus its number.
    pub(super) const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 143,
            Self::Interrupt => 130,
        }
    }
}

impl Signals {
    /// Installs handlers; from now on the signals no longer end the process by themselves.
    pub(super) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that stops the process, and calls `reload` for each SIGHUP until then.
    pub(super) async fn next(&mut self, reload: impl Fn()) -> StopSignal {
        loop {
            select! {
                _ = self.terminate.recv() => return StopSignal::Terminate,
                _ = self.interrupt.recv() => return StopSignal::Interrupt,
                _ = self.hang_up.recv() => reload(),
            }
        }
    }
}
