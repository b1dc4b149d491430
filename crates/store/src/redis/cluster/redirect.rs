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
        batch::{RequestOptions, Submission},
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
const IMMEDIATE_REDIRECTS: u32 = 3;

/// Redirections that are followed at all, if no `TRYAGAIN` is between them.
const MAX_REDIRECTS: u32 = 16;

/// Where a command is sent next.
pub(super) enum RedirectTarget {
    /// To the owner of its slot.
    Owner,
    /// To the owner of its slot, in a moment.
    RetryOwnerAfterBackoff,
    /// To the owner of its slot, which is another one than was thought, and not known yet.
    OwnerOnceKnown,
    /// To a node that is about to own its slot.
    Importer(Address),
    /// To the same node, once it knows the script.
    AfterScriptLoad,
}

/// The redirections of one command.
pub(super) struct RedirectPolicy {
    followed: u32,
    backoff: Backoff,
}

impl RedirectPolicy {
    pub(super) const fn new() -> Self {
        Self { followed: 0, backoff: Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF) }
    }

    /// Takes note of another one, pauses if there are many, and says no when there are too many.
    pub(super) async fn allow(&mut self, target: &RedirectTarget) -> bool {
        self.followed = match target {
            // This may take as long as the caller has time for.
            RedirectTarget::RetryOwnerAfterBackoff => 0,
            _ => self.followed.saturating_add(1),
        };
        if self.followed > MAX_REDIRECTS {
            return false;
        }
        if matches!(target, RedirectTarget::RetryOwnerAfterBackoff | RedirectTarget::OwnerOnceKnown)
            || self.followed > IMMEDIATE_REDIRECTS
        {
            sleep(self.backoff.pause()).await;
        }
        true
    }
}

impl Cluster {
    /// Has the node that has the keys of a call decide it.
    pub(in crate::redis) async fn decide(&self, submission: Submission<'_>) -> Result<Verdicts, SendError> {
        if !self.has_slots() {
            let read = timeout_at(submission.deadline, self.wait_for_slots()).await;
            read.unwrap_or_else(|_| Err(SendError::NotConnected("the slots are being read".into())))?;
        }
        let slot = submission.request.cells.first().map_or(0, |cell| cell.key.slot());
        let route = self.owner(slot)?;
        match route.server.decide(submission).await {
            Ok(verdicts) => Ok(verdicts),
            // Apart, so that the usual case is a small future.
            Err(error) => Box::pin(self.decide_redirected(slot, route, error, submission)).await,
        }
    }

    /// What a call comes to as far as that is known here.
    pub(in crate::redis) fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts> {
        let slot = request.cells.first().map_or(0, |cell| cell.key.slot());
        self.owner(slot).ok()?.server.decide_from_cache(request, Instant::now())
    }

    /// The connection to the node that has a slot.
    pub(in crate::redis) async fn connection(&self, slot: u16) -> Result<Connection, SendError> {
        self.wait_for_slots().await?;
        Ok(self.owner(slot)?.server.connection().clone())
    }

    /// Makes a call again for as long as nodes say that they did nothing about it. It goes by itself.
    async fn decide_redirected(
        &self,
        slot: u16,
        route: Route,
        error: SendError,
        submission: Submission<'_>,
    ) -> Result<Verdicts, SendError> {
        let Submission { request, clock, deadline, .. } = submission;
        let command = self.shared.options.command(iter::once(Run::once(request)), clock);
        let (reply, route) =
            self.retry_redirected(slot, route, error, &command, &script::load(), deadline).await?;
        // It is not known there what this one changed.
        route.server.forget(request);
        RequestOptions::read(request, reply)
    }

    /// Has the owner of a slot obey a command that runs the script that `load` makes known. It goes again for as long
    /// as nodes say that they did nothing about it.
    pub(in crate::redis) async fn execute(
        &self,
        slot: u16,
        command: &Cmd,
        load: &Cmd,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        let read = timeout_at(deadline, self.wait_for_slots()).await;
        read.unwrap_or_else(|_| Err(SendError::NotConnected("the slots are being read".into())))?;
        let route = self.owner(slot)?;
        match route.send(command, false, deadline).await {
            Ok(reply) => Ok(reply),
            Err(error) => self
                .retry_redirected(slot, route, error, command, load, deadline)
                .await
                .map(|(reply, _)| reply),
        }
    }

    /// Has a command obeyed that `route` answered with `error`: it goes again for as long as nodes say that they did
    /// nothing about it. Tells who obeyed as well.
    pub(super) async fn retry_redirected(
        &self,
        slot: u16,
        mut route: Route,
        mut error: SendError,
        command: &Cmd,
        load: &Cmd,
        deadline: Instant,
    ) -> Result<(Value, Route), SendError> {
        let (mut policy, mut is_asking) = (RedirectPolicy::new(), false);
        loop {
            let Some(target) = self.redirect_target(slot, &error, &route.node) else { return Err(error) };
            match timeout_at(deadline, policy.allow(&target)).await {
                Ok(true) => {}
                Ok(false) => return Err(error),
                Err(_) => return Err(error.into_migrating()),
            }
            match target {
                RedirectTarget::AfterScriptLoad => {
                    let loaded = timeout_at(deadline, route.server.connection().send(load)).await;
                    drop(loaded.unwrap_or(Err(SendError::QueueTimeout))?);
                }
                RedirectTarget::Importer(node) => (route, is_asking) = (self.node(&node)?, true),
                RedirectTarget::Owner
                | RedirectTarget::RetryOwnerAfterBackoff
                | RedirectTarget::OwnerOnceKnown => {
                    (route, is_asking) = (self.owner(slot)?, false);
                }
            }
            error = match route.send(command, is_asking, deadline).await {
                Ok(reply) => return Ok((reply, route)),
                Err(error) => error,
            };
        }
    }

    /// What to do about the error of a node; `None` when the caller is to have it.
    pub(super) fn redirect_target(
        &self,
        slot: u16,
        error: &SendError,
        node: &Address,
    ) -> Option<RedirectTarget> {
        let (error, kind) = match error {
            SendError::Failed(error) => (error, error.kind()),
            SendError::NotConnected(_) | SendError::BreakerOpen => {
                self.refresh();
                return None;
            }
            // Should the node be silent, then that is found soon.
            SendError::Timeout
            | SendError::QueueTimeout
            | SendError::Overloaded
            | SendError::MalformedReply
            | SendError::SlotMigrating(_) => return None,
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
        let named = || error.redirect_node().and_then(|(named, _)| Address::from_redirect(named, node));
        match kind {
            ServerErrorKind::Moved => {
                self.refresh();
                let Some(owner) = named() else { return Some(RedirectTarget::OwnerOnceKnown) };
                self.shared.table.lock().set_owner(slot, &owner);
                Some(RedirectTarget::Owner)
            }
            ServerErrorKind::Ask => {
                named().map(RedirectTarget::Importer).or(Some(RedirectTarget::OwnerOnceKnown))
            }
            ServerErrorKind::TryAgain => Some(RedirectTarget::RetryOwnerAfterBackoff),
            ServerErrorKind::NoScript => Some(RedirectTarget::AfterScriptLoad),
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
        self.server.ensure_available()?;
        let connection = self.server.connection();
        // A node that was not known before has no connection yet.
        timeout_at(deadline, connection.first_attempt()).await.map_err(|_| SendError::QueueTimeout)?;
        let sent = async {
            match is_asking {
                false => connection.send(command).await,
                true => connection.send_asking(command).await,
            }
        };
        timeout_at(deadline, sent).await.unwrap_or(Err(SendError::Timeout))
    }
}
