//! Query of one node for the slots.

use std::time::Duration;

use ::redis::{Value, cmd};
use tokio::time::timeout;
use tollgate_runtime::foreign_text;

use super::{
    SharedCluster,
    slots::{self, Range},
};
use crate::redis::{
    address::Address,
    connection::{Connection, SendError},
};

/// Time limit of a reply, a new connection to the node included.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Queries a node, over its connection if there is one.
///
/// # Errors
/// The reason why there is no usable reply, for logs.
pub(super) async fn query_slots(
    shared: &SharedCluster,
    node: Address,
    connection: Option<Connection>,
) -> Result<Vec<Range>, String> {
    let reply = match connection {
        Some(connection) => read_reply(&node, connection.send(cmd("CLUSTER").arg("SLOTS"))).await,
        None => read_reply(&node, query_on_new_connection(shared, &node)).await,
    };
    reply.map_err(|error| format!("{node}: {}", foreign_text::bounded(&error)))
}

/// Queries over a new connection.
async fn query_on_new_connection(shared: &SharedCluster, node: &Address) -> Result<Value, SendError> {
    let mut connection = shared.template.connect(node).await.map_err(SendError::Failed)?;
    let reply = connection.send_packed_command(cmd("CLUSTER").arg("SLOTS")).await;
    reply.and_then(Value::extract_error).map_err(SendError::Failed)
}

/// Reads the reply of a node. A reply without slots is that of a node that left the cluster or never joined it.
async fn read_reply(
    node: &Address,
    reply: impl Future<Output = Result<Value, SendError>>,
) -> Result<Vec<Range>, String> {
    match timeout(QUERY_TIMEOUT, reply).await {
        Ok(Ok(reply)) => match slots::parse(&reply, node) {
            Some(ranges) if ranges.is_empty() => Err("no slots in its reply".into()),
            Some(ranges) => Ok(ranges),
            None => Err("malformed reply".into()),
        },
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {QUERY_TIMEOUT:?}")),
    }
}
