//! Commands on several slots of one cluster node, which Redis permits since version 7.
//!
//! Such a command costs a node about half as much for each call as a command for each slot. A node before version 7, or a
//! proxy, may refuse it; so a connection begins with commands of one slot each, and a probe that changes nothing finds out
//! what the server permits as soon as there are calls of two slots. Another connection may lead to another server, and is
//! probed again.
//!
//! Calls that such a command could not decide, because its node does not serve a slot any more or the slot migrates, are
//! sent again alone, with the redirections of a cluster: the script reads every key of a call before it writes one, so
//! nothing was charged.

use std::{sync::atomic::AtomicU64, time::Duration};

use ::redis::{Pipeline, Value};
use tokio::time::Instant;

use super::queue::BoxedRequest;
use crate::redis::connection::{Connection, LiveConnection};
use crate::redis::error::SendError;
use crate::redis::metrics::{ANY_SLOT, CommandSlotsGauge, ONE_SLOT};
use crate::redis::script::{self, CommandKeys};
use crate::{after, key::CellKey, request::TagRequest};

/// First pause after a refused probe; doubles with each further one.
const INITIAL_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause between probes.
const MAX_PAUSE: Duration = Duration::from_secs(64);

/// Time for which the calls of a slot that was not reached get commands of their own, so that they are redirected at once.
const APART_TIME: Duration = Duration::from_millis(200);

/// Maximum number of such slots. While there are more, calls take one attempt more.
const MAX_APART: usize = 64;

/// Weight of a call that was not decided against those that were: commands on several slots end where more than a fifth of
/// the calls fail, as behind a proxy that serves any slot.
const FAILURE_WEIGHT: usize = 4;

/// Calls decided in a row after which a refusal counts as the first one again.
const TRUSTED_CALLS: usize = 65_536;

/// Excess of failures at which they end: a few full commands.
const MAX_DISTRUST: usize = 1_024;

/// The keys of the next commands on a connection.
#[derive(Debug)]
pub(super) struct AcrossSlots {
    permission: Permission,
    pause: Duration,
    /// Failures, weighted, less the decided calls.
    distrust: usize,
    /// Calls decided since the last failure.
    decided: usize,
    /// Slots with commands of their own, until these times.
    apart: Vec<(u16, Instant)>,
    gauge: Option<CommandSlotsGauge>,
}

/// Whether commands on several slots are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    /// The server has no slots.
    Unneeded,
    /// To be probed.
    Unknown,
    /// A probe is in flight.
    Probed,
    Granted,
    /// Refused until another probe at this time.
    Refused(Instant),
}

impl AcrossSlots {
    /// For a server whose commands have these keys without further ado.
    pub(super) const fn new(keys: CommandKeys) -> Self {
        let permission = match keys {
            CommandKeys::NoSlots => Permission::Unneeded,
            CommandKeys::OneSlot | CommandKeys::AnySlotOfNode => Permission::Unknown,
        };
        Self { permission, pause: INITIAL_PAUSE, distrust: 0, decided: 0, apart: Vec::new(), gauge: None }
    }

    /// Records a new connection.
    pub(super) fn connected(&mut self) {
        if self.permission != Permission::Unneeded {
            *self = Self::new(CommandKeys::OneSlot);
            self.count(&ONE_SLOT);
        }
    }

    /// Records that there is no connection.
    pub(super) fn disconnected(&mut self) {
        self.gauge = None;
    }

    /// Whether commands on several slots are sent.
    pub(super) fn is_granted(&self) -> bool {
        self.permission == Permission::Granted
    }

    /// Two keys of different slots to probe, if the server is to be probed.
    pub(super) fn keys_to_probe(&mut self, pending: &[BoxedRequest], now: Instant) -> Option<[CellKey; 2]> {
        if !self.is_due(now) {
            return None;
        }
        let mut keys = pending.iter().filter_map(|pending| pending.request.key());
        let first = keys.next()?;
        let second = keys.find(|key| key.slot() != first.slot())?;
        self.permission = Permission::Probed;
        Some([first.clone(), second.clone()])
    }

    /// Whether the server is to be probed.
    fn is_due(&self, now: Instant) -> bool {
        match self.permission {
            Permission::Unknown => true,
            Permission::Refused(until) => until <= now,
            Permission::Unneeded | Permission::Probed | Permission::Granted => false,
        }
    }

    /// Records the result of a probe; returns the error if this is the first one that was refused.
    pub(super) fn probed(&mut self, result: Result<(), SendError>, now: Instant) -> Option<SendError> {
        if self.permission != Permission::Probed {
            return None;
        }
        match result {
            Ok(()) => {
                self.permission = Permission::Granted;
                self.count(&ANY_SLOT);
                None
            }
            Err(error) => {
                let is_first = self.pause == INITIAL_PAUSE && !is_unreached(&error);
                self.refuse(now);
                is_first.then_some(error)
            }
        }
    }

    /// Sends commands of one slot from now on, until another probe.
    pub(super) fn refuse(&mut self, now: Instant) {
        if self.permission != Permission::Unneeded {
            self.permission = Permission::Refused(after(now, self.pause));
            self.pause = self.pause.saturating_mul(2).min(MAX_PAUSE);
            self.distrust = 0;
            self.count(&ONE_SLOT);
        }
    }

    /// Records that a command on several slots decided some calls, and did not reach the keys of others.
    pub(super) fn decided(&mut self, decided: usize, unreached: &[u16], now: Instant) {
        let failures = unreached.len().saturating_mul(FAILURE_WEIGHT);
        self.distrust = self.distrust.saturating_add(failures).saturating_sub(decided);
        self.decided = if unreached.is_empty() { self.decided.saturating_add(decided) } else { 0 };
        if self.decided > TRUSTED_CALLS {
            self.pause = INITIAL_PAUSE;
        }
        if self.distrust > MAX_DISTRUST && self.is_granted() {
            return self.refuse(now);
        }
        let until = after(now, APART_TIME);
        for slot in unreached {
            self.apart.retain(|(known, _)| known != slot);
            if self.apart.len() < MAX_APART {
                self.apart.push((*slot, until));
            }
        }
    }

    /// Keys of the commands that are sent now.
    pub(super) fn keys(&mut self, now: Instant) -> CommandKeys {
        self.apart.retain(|(_, until)| *until > now);
        match self.permission {
            Permission::Unneeded => CommandKeys::NoSlots,
            Permission::Granted => CommandKeys::AnySlotOfNode,
            Permission::Unknown | Permission::Probed | Permission::Refused(_) => CommandKeys::OneSlot,
        }
    }

    /// The scripts of the commands that may be sent.
    pub(super) const fn scripts(&self) -> &'static [CommandKeys] {
        match self.permission {
            Permission::Granted => &[CommandKeys::OneSlot, CommandKeys::AnySlotOfNode],
            _ => &[CommandKeys::OneSlot],
        }
    }

    /// Whether the request has a command of its own, however many others may share one.
    pub(super) fn is_apart(&self, request: &TagRequest) -> bool {
        let is_apart = |slot| self.apart.iter().any(|(apart, _)| *apart == slot);
        !self.apart.is_empty() && is_apart(request.slot())
    }

    fn count(&mut self, connections: &'static AtomicU64) {
        self.gauge = None;
        self.gauge = Some(CommandSlotsGauge::new(connections));
    }
}

/// Has the script of commands on several slots read two keys. It was loaded when connecting, and is loaded again where the
/// server has lost it.
pub(super) async fn probe(
    connection: Connection,
    mut live: LiveConnection,
    key_prefix: impl AsRef<[u8]>,
    keys: [CellKey; 2],
) -> (u64, Result<(), SendError>) {
    let [first, second] = &keys;
    let probe = script::probe_across_slots(key_prefix.as_ref(), [first, second]);
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(probe.clone());
    let mut result = send_probe(&connection, &mut live, &commands).await;
    if result.as_ref().is_err_and(SendError::is_unknown_script) {
        commands.clear();
        commands.add_command(script::load(CommandKeys::AnySlotOfNode)).add_command(probe);
        result = send_probe(&connection, &mut live, &commands).await;
    }
    (live.generation, result)
}

async fn send_probe(
    connection: &Connection,
    live: &mut LiveConnection,
    commands: &Pipeline,
) -> Result<(), SendError> {
    match connection.send_all(live, commands).await?.into_iter().next_back() {
        Some(Value::ServerError(error)) => Err(SendError::Failed(error.into())),
        Some(Value::Okay | Value::SimpleString(_)) => Ok(()),
        Some(_) | None => Err(SendError::MalformedReply),
    }
}

fn is_unreached(error: &SendError) -> bool {
    matches!(error, SendError::Failed(error) if script::is_unreached(error))
}

#[cfg(test)]
mod tests;
