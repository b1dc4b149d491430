//! Getting a command to the node that has its keys.

use ::redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::{
    Cluster,
    redirect::{Next, RedirectPolicy},
    table::Route,
};
use crate::redis::connection::SendError;

impl Cluster {
    /// Has the owner of a slot obey a command that runs the script that `load` makes known. It goes again for as long
    /// as nodes say that they did nothing about it.
    pub(in crate::redis) async fn obey(
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
            Ok(answer) => Ok(answer),
            Err(error) => {
                self.redirected(slot, route, error, command, load, deadline).await.map(|(answer, _)| answer)
            }
        }
    }

    /// Has a command obeyed that `route` answered with `error`: it goes again for as long as nodes say that they did
    /// nothing about it. Tells who obeyed as well.
    pub(super) async fn redirected(
        &self,
        slot: u16,
        mut route: Route,
        mut error: SendError,
        command: &Cmd,
        load: &Cmd,
        deadline: Instant,
    ) -> Result<(Value, Route), SendError> {
        let (mut hops, mut is_asking) = (RedirectPolicy::new(), false);
        loop {
            let Some(next) = self.next(slot, &error, &route.node) else { return Err(error) };
            match timeout_at(deadline, hops.allow(&next)).await {
                Ok(true) => {}
                Ok(false) => return Err(error),
                Err(_) => return Err(error.in_vain()),
            }
            match next {
                Next::SameWithScript => {
                    let loaded = timeout_at(deadline, route.server.connection().send(load)).await;
                    drop(loaded.unwrap_or(Err(SendError::Unsent))?);
                }
                Next::Importer(node) => (route, is_asking) = (self.node(&node)?, true),
                Next::Owner | Next::RetryOwnerAfterBackoff | Next::OwnerOnceKnown => {
                    (route, is_asking) = (self.owner(slot)?, false);
                }
            }
            error = match route.send(command, is_asking, deadline).await {
                Ok(answer) => return Ok((answer, route)),
                Err(error) => error,
            };
        }
    }
}
