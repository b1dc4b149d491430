//! Asking one node for the slots.

use std::time::Duration;

use ::redis::{Value, cmd};
use tokio::time::timeout;

use super::{
    Shared,
    slots::{self, Range},
};
use crate::redis::{
    address::Address,
    connection::{Connection, SendError},
};

/// How long a node may take to answer, a new connection to it included.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// What a node says, by the connection to it if there is one.
///
/// # Errors
/// Why it says nothing of use, for people.
pub(super) async fn query_slots(
    shared: &Shared,
    node: Address,
    connection: Option<Connection>,
) -> Result<Vec<Range>, String> {
    let reply = match connection {
        Some(connection) => read_reply(&node, connection.send(cmd("CLUSTER").arg("SLOTS"))).await,
        None => read_reply(&node, query_on_new_connection(shared, &node)).await,
    };
    reply.map_err(|error| format!("{node}: {error}"))
}

/// Asks on a connection that is made for it.
async fn query_on_new_connection(shared: &Shared, node: &Address) -> Result<Value, SendError> {
    let mut connection = shared.template.connect(node).await.map_err(SendError::Failed)?;
    let reply = connection.send_packed_command(cmd("CLUSTER").arg("SLOTS")).await;
    reply.and_then(Value::extract_error).map_err(SendError::Failed)
}

/// What a node answers. That there are no slots at all is the view of a node that left the cluster, or never was in
/// it.
async fn read_reply(
    node: &Address,
    reply: impl Future<Output = Result<Value, SendError>>,
) -> Result<Vec<Range>, String> {
    match timeout(QUERY_TIMEOUT, reply).await {
        Ok(Ok(reply)) => match slots::parse(&reply, node) {
            Some(ranges) if ranges.is_empty() => Err("it knows no slots".into()),
            Some(ranges) => Ok(ranges),
            None => Err("its answer makes no sense".into()),
        },
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {QUERY_TIMEOUT:?}")),
    }
}
