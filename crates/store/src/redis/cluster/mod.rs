//! A Redis Cluster: a table of its slots, and one connection for each master in use.
//!
//! A request goes to the owner of its slot, batched with others. The table has two sources: the reply of a node to
//! `CLUSTER SLOTS`, which a task queries (`refresh`), and the redirections of commands. Where they disagree, the next
//! command is redirected again. Only replies that rule out an effect lead to another attempt.

mod refresh;
mod slots;
mod table;

use std::{iter, sync::Arc, time::Duration};

use ::redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_runtime::backoff::Backoff;

use self::table::{Route, SlotTable};
use super::batch::{CallTimes, RequestOptions};
use super::script::{self, CommandKeys, Run};
use super::{connect::ConnectTemplate, connection::Connection, error::SendError, url::Address};
use crate::request::{TagRequest, Verdicts};

/// First pause before another attempt while a slot migrates or nodes disagree; doubles with each further attempt.
const INITIAL_BACKOFF: Duration = Duration::from_millis(1);

/// Longest pause between attempts.
const MAX_BACKOFF: Duration = Duration::from_millis(20);

/// Redirections followed without a pause.
const IMMEDIATE_REDIRECTS: u32 = 3;

/// Redirections followed in all, if no `TRYAGAIN` is among them.
const MAX_REDIRECTS: u32 = 16;

/// A cluster, whose connections end when it is dropped.
pub(super) struct Cluster {
    shared: Arc<SharedCluster>,
    phase: watch::Receiver<DiscoveryPhase>,
    /// Notifies the task that the table may be outdated. The task ends with the sender.
    refresh_trigger: watch::Sender<()>,
}

/// State shared by the handles and the task.
struct SharedCluster {
    template: ConnectTemplate,
    options: RequestOptions,
    seeds: Vec<Address>,
    table: Mutex<SlotTable>,
}

/// Progress of the discovery of the cluster.
enum DiscoveryPhase {
    /// The slots are being read for the first time: requests wait.
    Pending,
    /// The slots could not be read so far, for this reason: requests fail at once.
    Failed(String),
    /// The slots are known.
    Discovered,
    /// The slots are known, and one of their owners is connected.
    Reached,
}

impl Cluster {
    /// Discovers the cluster of the `seeds`, in the background.
    pub(super) fn open(template: ConnectTemplate, seeds: Vec<Address>, options: RequestOptions) -> Self {
        let table = Mutex::new(SlotTable::new(template.clone(), options.clone()));
        let shared = Arc::new(SharedCluster { template, options, seeds, table });
        let (report, phase) = watch::channel(DiscoveryPhase::Pending);
        let (refresh_trigger, refreshes) = watch::channel(());
        tokio::spawn(refresh::run(Arc::clone(&shared), refreshes, report));
        Self { shared, phase, refresh_trigger }
    }

    /// Waits until the slots are known and one of their owners is connected (true), or no handle is left (false). The
    /// future is not a handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut phase = self.phase.clone();
        async move { phase.wait_for(|phase| matches!(phase, DiscoveryPhase::Reached)).await.is_ok() }
    }

    /// Addresses of nodes, connected ones first.
    pub(super) fn nodes(&self) -> Vec<Address> {
        let table = self.shared.table.lock();
        let mut nodes: Vec<_> = table.reachable().into_iter().map(|route| route.node).collect();
        fastrand::shuffle(&mut nodes);
        nodes.extend(table.addresses());
        nodes.extend(self.shared.seeds.iter().cloned());
        nodes
    }

    /// The node that owns a slot, if it is known.
    pub(super) fn node_of(&self, slot: u16) -> Option<Address> {
        self.shared.table.lock().owner(slot).map(|route| route.node)
    }

    async fn wait_for_slots(&self) -> Result<(), SendError> {
        let mut phase = self.phase.clone();
        let outcome = phase.wait_for(|phase| !matches!(phase, DiscoveryPhase::Pending)).await;
        match outcome.as_deref() {
            Ok(DiscoveryPhase::Discovered | DiscoveryPhase::Reached) => Ok(()),
            Ok(DiscoveryPhase::Failed(reason)) => Err(SendError::NotConnected(reason.clone())),
            Ok(DiscoveryPhase::Pending) | Err(_) => Err(SendError::NotConnected("shutting down".into())),
        }
    }

    async fn wait_for_slots_until(&self, deadline: Instant) -> Result<(), SendError> {
        let read = timeout_at(deadline, self.wait_for_slots()).await;
        read.unwrap_or_else(|_| Err(SendError::NotConnected("cluster slots not read yet".into())))
    }

    /// Triggers a refresh of the slots.
    fn refresh(&self) {
        self.refresh_trigger.send_replace(());
    }

    /// Has the owner of the request's keys decide it.
    pub(super) async fn decide(&self, request: &TagRequest, times: CallTimes) -> Result<Verdicts, SendError> {
        if !matches!(*self.phase.borrow(), DiscoveryPhase::Discovered | DiscoveryPhase::Reached) {
            // Boxed, so that the future of the usual case is small.
            Box::pin(self.wait_for_slots_until(times.deadline)).await?;
        }
        let route = self.owner(request.slot())?;
        match route.server.decide(request, times).await {
            Ok(verdicts) => Ok(verdicts),
            // Boxed too.
            Err(error) => Box::pin(self.decide_redirected(route, error, request, times)).await,
        }
    }

    /// Decides a request from the cache of its owner's batcher, if that suffices.
    pub(super) fn decide_from_cache(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        self.shared.table.lock().server(request.slot())?.decide_from_cache(request, now)
    }

    /// The connection to the owner of a slot.
    pub(super) async fn connection(&self, slot: u16) -> Result<Connection, SendError> {
        self.wait_for_slots().await?;
        Ok(self.owner(slot)?.server.connection.clone())
    }

    /// Repeats a request, unbatched, as long as replies rule out an effect.
    async fn decide_redirected(
        &self,
        route: Route,
        error: SendError,
        request: &TagRequest,
        CallTimes { deadline, fixed, .. }: CallTimes,
    ) -> Result<Verdicts, SendError> {
        let run = iter::once(Run::once(request));
        let command = self.shared.options.command(run, CommandKeys::OneSlot, fixed);
        let (slot, load) = (request.slot(), script::load(CommandKeys::OneSlot));
        let (reply, route) = self.retry_redirected(slot, route, error, &command, &load, deadline).await?;
        // That node's cache does not reflect this request.
        route.server.forget(request);
        RequestOptions::read(request, reply)
    }

    /// Executes a command on the owner of a slot; `load` loads the script that the command runs. Repeats it as long as
    /// replies rule out an effect.
    pub(super) async fn execute(
        &self,
        slot: u16,
        command: &Cmd,
        load: &Cmd,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        self.wait_for_slots_until(deadline).await?;
        let route = self.owner(slot)?;
        match route.send(command, false, deadline).await {
            Ok(reply) => Ok(reply),
            Err(error) => self
                .retry_redirected(slot, route, error, command, load, deadline)
                .await
                .map(|(reply, _)| reply),
        }
    }

    /// Repeats a command that failed with `error` on `route`, as long as replies rule out an effect. Returns the reply
    /// and the node that executed the command.
    async fn retry_redirected(
        &self,
        slot: u16,
        mut route: Route,
        mut error: SendError,
        command: &Cmd,
        load: &Cmd,
        deadline: Instant,
    ) -> Result<(Value, Route), SendError> {
        let backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        let (mut policy, mut is_asking) = (RedirectPolicy { followed: 0, backoff }, false);
        loop {
            let Some(target) = self.redirect_target(slot, &error, &route.node) else { return Err(error) };
            match timeout_at(deadline, policy.allow(&target)).await {
                Ok(true) => {}
                Ok(false) => return Err(error),
                // There was no time for another attempt.
                Err(_) => match error {
                    SendError::Failed(error) => return Err(SendError::SlotMigrating(error)),
                    error => return Err(error),
                },
            }
            match target {
                RedirectTarget::SameNodeAfterScriptLoad => {
                    let loaded = timeout_at(deadline, route.server.connection.send(load)).await;
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

    /// Target of the next attempt after an error of a node; `None` if the caller gets the error.
    fn redirect_target(&self, slot: u16, error: &SendError, node: &Address) -> Option<RedirectTarget> {
        let (error, kind) = match error {
            SendError::Failed(error) => (error, error.kind()),
            // A command of its own gets a redirection, if there is one.
            SendError::Unreached(_) => return Some(RedirectTarget::Owner),
            SendError::NotConnected(_) | SendError::BreakerOpen => {
                self.refresh();
                return None;
            }
            // If the node is unresponsive, its circuit breaker will open soon.
            SendError::Timeout
            | SendError::Late(_)
            | SendError::QueueTimeout
            | SendError::Overloaded
            | SendError::MalformedReply
            | SendError::SlotMigrating(_) => return None,
        };
        match kind {
            ErrorKind::Server(kind) => self.target_of_reply(slot, error, kind, node),
            // The node is there and owns the slot, but refuses, for instance because its memory is full.
            ErrorKind::Extension => None,
            _ => {
                // The outcome of the command is unknown. The node may be lost for good.
                self.refresh();
                None
            }
        }
    }

    /// Target of the next attempt after an error reply of a node; `None` if the caller gets the error.
    fn target_of_reply(
        &self,
        slot: u16,
        error: &RedisError,
        kind: ServerErrorKind,
        node: &Address,
    ) -> Option<RedirectTarget> {
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
            ServerErrorKind::NoScript => Some(RedirectTarget::SameNodeAfterScriptLoad),
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

    fn owner(&self, slot: u16) -> Result<Route, SendError> {
        let owner = self.shared.table.lock().owner(slot);
        owner.ok_or_else(|| {
            self.refresh();
            SendError::NotConnected(format!("no node owns slot {slot}"))
        })
    }

    fn node(&self, node: &Address) -> Result<Route, SendError> {
        let route = self.shared.table.lock().node(node);
        route.ok_or_else(|| SendError::NotConnected(format!("invalid address of cluster node {node}")))
    }
}

/// Target of the next attempt.
enum RedirectTarget {
    /// The owner of the slot.
    Owner,
    /// The owner of the slot, after a pause.
    RetryOwnerAfterBackoff,
    /// The owner of the slot, once the refreshed table names it.
    OwnerOnceKnown,
    /// The node that imports the slot.
    Importer(Address),
    /// The node that failed, after loading the script.
    SameNodeAfterScriptLoad,
}

/// Bounds the redirections of one command.
struct RedirectPolicy {
    followed: u32,
    backoff: Backoff,
}

impl RedirectPolicy {
    /// Records another redirection and pauses if there are many; returns false when there are too many.
    async fn allow(&mut self, target: &RedirectTarget) -> bool {
        self.followed = match target {
            // A migration may take up all the time of the caller.
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

impl Route {
    /// Sends a command unbatched, once, and awaits its reply.
    async fn send(&self, command: &Cmd, is_asking: bool, deadline: Instant) -> Result<Value, SendError> {
        self.server.ensure_available()?;
        let connection = &self.server.connection;
        // A node that was not known before has no connection yet.
        timeout_at(deadline, connection.first_attempt()).await.map_err(|_| SendError::QueueTimeout)?;
        let sent = async {
            if is_asking { connection.send_asking(command).await } else { connection.send(command).await }
        };
        timeout_at(deadline, sent).await.unwrap_or(Err(SendError::Timeout))
    }
}
