//! Getting one call to the node that decides it.
//!
//! It goes to the owner of its slot, with others. Only answers that say that the node did nothing lead to another
//! attempt.

use std::{iter, time::Duration};

use ::redis::{Cmd, ErrorKind, ServerErrorKind, Value};
use tokio::time::{Instant, sleep, timeout_at};

use tollgate_runtime::backoff::Backoff;

use super::{Cluster, table::Route};
use crate::{
    redis::{
        address::Address,
        batch::{Submission, Terms},
        connection::{Connection, SendError},
        script::{self, Run},
    },
    request::{TagRequest, Verdicts},
};

/// The first pause before another attempt while a slot is on its way from one node to another, or nodes disagree;
/// it doubles with each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(1);

/// The longest of these pauses.
const MAX_BACKOFF: Duration = Duration::from_millis(20);

/// Redirections that are followed without a pause.
const HOPS_AT_ONCE: u32 = 3;

/// Redirections that are followed at all, if no `TRYAGAIN` is between them.
const MOST_HOPS: u32 = 16;

/// Where a command is sent next.
pub(super) enum Next {
    /// To the owner of its slot.
    Owner,
    /// To the owner of its slot, in a moment.
    RetryOwnerAfterBackoff,
    /// To the owner of its slot, which is another one than was thought, and not known yet.
    OwnerOnceKnown,
    /// To a node that is about to own its slot.
    Importer(Address),
    /// To the same node, once it knows the script.
    SameWithScript,
}

/// The redirections of one command.
pub(super) struct RedirectPolicy {
    taken: u32,
    backoff: Backoff,
}

impl RedirectPolicy {
    pub(super) const fn new() -> Self {
        Self { taken: 0, backoff: Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF) }
    }

    /// Takes note of another one, pauses if there are many, and says no when there are too many.
    pub(super) async fn allow(&mut self, next: &Next) -> bool {
        self.taken = match next {
            // This may take as long as the caller has time for.
            Next::RetryOwnerAfterBackoff => 0,
            _ => self.taken.saturating_add(1),
        };
        if self.taken > MOST_HOPS {
            return false;
        }
        if matches!(next, Next::RetryOwnerAfterBackoff | Next::OwnerOnceKnown) || self.taken > HOPS_AT_ONCE {
            sleep(self.backoff.pause()).await;
        }
        true
    }
}

impl Cluster {
    /// Has the node that has the keys of a call decide it.
    pub(in crate::redis) async fn decide(&self, request: Submission<'_>) -> Result<Verdicts, SendError> {
        if !self.knows_slots() {
            let read = timeout_at(request.deadline, self.wait_for_slots()).await;
            read.unwrap_or_else(|_| Err(SendError::NotConnected("the slots are being read".into())))?;
        }
        let slot = request.call.cells.first().map_or(0, |cell| cell.key.slot());
        let route = self.owner(slot)?;
        match route.server.decide(request).await {
            Ok(verdicts) => Ok(verdicts),
            // Apart, so that the usual case is a small future.
            Err(error) => Box::pin(self.follow(slot, route, error, request)).await,
        }
    }

    /// What a call comes to as far as that is known here.
    pub(in crate::redis) fn known(&self, call: &TagRequest) -> Option<Verdicts> {
        let slot = call.cells.first().map_or(0, |cell| cell.key.slot());
        self.owner(slot).ok()?.server.known(call, Instant::now())
    }

    /// The connection to the node that has a slot.
    pub(in crate::redis) async fn connection(&self, slot: u16) -> Result<Connection, SendError> {
        self.wait_for_slots().await?;
        Ok(self.owner(slot)?.server.connection().clone())
    }

    /// Makes a call again for as long as nodes say that they did nothing about it. It goes by itself.
    async fn follow(
        &self,
        slot: u16,
        route: Route,
        error: SendError,
        request: Submission<'_>,
    ) -> Result<Verdicts, SendError> {
        let Submission { call, clock, deadline, .. } = request;
        let command = self.shared.terms.command(iter::once(Run::once(call)), clock);
        let (answer, route) =
            self.redirected(slot, route, error, &command, &script::load(), deadline).await?;
        // It is not known there what this one changed.
        route.server.forget(call);
        Terms::read(call, answer)
    }

    /// What to do about the error of a node; `None` when the caller is to have it.
    pub(super) fn next(&self, slot: u16, error: &SendError, node: &Address) -> Option<Next> {
        let (error, kind) = match error {
            SendError::Failed(error) => (error, error.kind()),
            SendError::NotConnected(_) | SendError::Silent => {
                self.refresh();
                return None;
            }
            // Should the node be silent, then that is found soon.
            SendError::Late
            | SendError::Unsent
            | SendError::Crowded
            | SendError::Garbled
            | SendError::Moving(_) => return None,
        };
        let kind = match kind {
            ErrorKind::Server(kind) => kind,
            // The node is there and has the slot, and refuses all the same, as when its memory is full.
            ErrorKind::Extension => return None,
            _ => {
                // What became of the command is unknown. The node may be gone for good.
                self.refresh();
                return None;
            }
        };
        let named = || error.redirect_node().and_then(|(named, _)| Address::into_store_error(named, node));
        match kind {
            ServerErrorKind::Moved => {
                self.refresh();
                let Some(owner) = named() else { return Some(Next::OwnerOnceKnown) };
                self.shared.table.lock().note_owner(slot, &owner);
                Some(Next::Owner)
            }
            ServerErrorKind::Ask => named().map(Next::Importer).or(Some(Next::OwnerOnceKnown)),
            ServerErrorKind::TryAgain => Some(Next::RetryOwnerAfterBackoff),
            ServerErrorKind::NoScript => Some(Next::SameWithScript),
            ServerErrorKind::ClusterDown
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly => {
                self.refresh();
                None
            }
            _ => None,
        }
    }

    pub(super) fn owner(&self, slot: u16) -> Result<Route, SendError> {
        let owner = self.shared.table.lock().owner(slot);
        owner.ok_or_else(|| {
            self.refresh();
            SendError::NotConnected(format!("no node has slot {slot}"))
        })
    }

    pub(super) fn node(&self, node: &Address) -> Result<Route, SendError> {
        let route = self.shared.table.lock().node(node);
        route.ok_or_else(|| SendError::NotConnected(format!("no way to {node}")))
    }
}

impl Route {
    /// Sends a command by itself, once, and awaits its answer.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        is_asking: bool,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        self.server.check()?;
        let connection = self.server.connection();
        // A node that was not known before has no connection yet.
        timeout_at(deadline, connection.settled()).await.map_err(|_| SendError::Unsent)?;
        let sent = async {
            match is_asking {
                false => connection.send(command).await,
                true => connection.send_asking(command).await,
            }
        };
        timeout_at(deadline, sent).await.unwrap_or(Err(SendError::Late))
    }
}

impl SendError {
    /// The same error when there was no time for another attempt.
    pub(super) fn in_vain(self) -> Self {
        match self {
            Self::Failed(error) => Self::Moving(error),
            other => other,
        }
    }
}
