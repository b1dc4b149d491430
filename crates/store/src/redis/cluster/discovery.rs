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
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// What a node says, by the connection to it if there is one.
///
/// # Errors
/// Why it says nothing of use, for people.
pub(super) async fn ask(
    shared: &Shared,
    node: Address,
    connection: Option<Connection>,
) -> Result<Vec<Range>, String> {
    let answer = match connection {
        Some(connection) => answer(&node, connection.send(cmd("CLUSTER").arg("SLOTS"))).await,
        None => answer(&node, ask_anew(shared, &node)).await,
    };
    answer.map_err(|error| format!("{node}: {error}"))
}

/// Asks on a connection that is made for it.
async fn ask_anew(shared: &Shared, node: &Address) -> Result<Value, SendError> {
    let mut connection = shared.access.connect(node).await.map_err(SendError::Failed)?;
    let answer = connection.send_packed_command(cmd("CLUSTER").arg("SLOTS")).await;
    answer.and_then(Value::extract_error).map_err(SendError::Failed)
}

/// What a node answers. That there are no slots at all is the view of a node that left the cluster, or never was in
/// it.
async fn answer(
    node: &Address,
    asked: impl Future<Output = Result<Value, SendError>>,
) -> Result<Vec<Range>, String> {
    match timeout(ASK_TIMEOUT, asked).await {
        Ok(Ok(answer)) => match slots::read(&answer, node) {
            Some(ranges) if ranges.is_empty() => Err("it knows no slots".into()),
            Some(ranges) => Ok(ranges),
            None => Err("its answer makes no sense".into()),
        },
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {ASK_TIMEOUT:?}")),
    }
}
