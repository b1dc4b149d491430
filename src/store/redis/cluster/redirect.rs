//! Getting one command to the node that obeys it.
//!
//! Only answers that say that the node did nothing lead to another attempt.

use std::time::Duration;

use ::redis::{Cmd, ErrorKind, ServerErrorKind, Value};
use tokio::time::sleep;

use super::{Cluster, table::Route};
use crate::store::redis::{address::Address, connection::SendError, script};

/// Before another attempt while a slot is on its way from one node to another, or nodes disagree.
const PAUSE: Duration = Duration::from_millis(1);

/// Redirections that are followed without a pause.
const HOPS_AT_ONCE: u32 = 3;

/// Redirections that are followed at all, if no `TRYAGAIN` is between them.
const MOST_HOPS: u32 = 16;

/// Where a command is sent next.
enum Next {
    /// To the owner of its slot.
    Owner,
    /// To the owner of its slot, in a moment.
    OwnerInAMoment,
    /// To a node that is about to own its slot.
    Importer(Address),
    /// To the same node, once it knows the script.
    SameWithScript,
}

/// The redirections of one command.
#[derive(Default)]
struct Hops(u32);

impl Hops {
    /// Takes note of another one, pauses if there are many, and says no when there are too many.
    async fn allow(&mut self, next: &Next) -> bool {
        if matches!(next, Next::OwnerInAMoment) {
            // This may take as long as the caller has time for.
            self.0 = 0;
            sleep(PAUSE).await;
            return true;
        }
        self.0 = self.0.saturating_add(1);
        if self.0 > HOPS_AT_ONCE {
            sleep(PAUSE).await;
        }
        self.0 <= MOST_HOPS
    }
}

impl Cluster {
    /// Sends a call of the script on keys of `slot` to the node that has them.
    pub(in crate::store::redis) async fn evaluate(
        &self,
        slot: u16,
        command: &Cmd,
    ) -> Result<Value, SendError> {
        self.wait_for_slots().await?;
        let mut route = self.owner(slot)?;
        let mut is_asking = false;
        let mut hops = Hops::default();
        loop {
            let answer = match is_asking {
                false => route.connection.send(command).await,
                true => route.connection.send_asking(command).await,
            };
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let Some(next) = self.next(slot, &error, &route.node) else { return Err(error) };
            if !hops.allow(&next).await {
                return Err(error);
            }
            match next {
                Next::SameWithScript => drop(route.connection.send(&script::load()).await?),
                Next::Importer(node) => (route, is_asking) = (self.node(&node)?, true),
                Next::Owner | Next::OwnerInAMoment => (route, is_asking) = (self.owner(slot)?, false),
            }
        }
    }

    /// What to do about the error of a node; `None` when the caller is to have it.
    fn next(&self, slot: u16, error: &SendError, node: &Address) -> Option<Next> {
        let (error, kind) = match error {
            SendError::Failed(error) => (error, error.kind()),
            SendError::NotConnected(_) => {
                self.refresh();
                return None;
            }
        };
        let ErrorKind::Server(kind) = kind else {
            // What became of the command is unknown. The node may be gone for good.
            self.refresh();
            return None;
        };
        let named = || error.redirect_node().and_then(|(named, _)| Address::told(named, node));
        match kind {
            ServerErrorKind::Moved => {
                self.refresh();
                self.shared.table.lock().note_owner(slot, &named()?);
                Some(Next::Owner)
            }
            ServerErrorKind::Ask => named().map(Next::Importer),
            ServerErrorKind::TryAgain => Some(Next::OwnerInAMoment),
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

    fn owner(&self, slot: u16) -> Result<Route, SendError> {
        let owner = self.shared.table.lock().owner(slot);
        owner.ok_or_else(|| {
            self.refresh();
            SendError::NotConnected(format!("no node has slot {slot}"))
        })
    }

    fn node(&self, node: &Address) -> Result<Route, SendError> {
        let route = self.shared.table.lock().node(node);
        route.ok_or_else(|| SendError::NotConnected(format!("no way to {node}")))
    }
}
