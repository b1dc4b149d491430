//! Writes of several requests, each with its response.

use std::time::Duration;

use ::redis::{Pipeline, Value};
use tokio::time::timeout;

use crate::redis::connection::{Connection, LiveConnection, SendError};

/// Number of a write, and the response to it.
pub(super) type Response = (u64, Result<Vec<Value>, SendError>);

/// A write to be sent.
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) pipeline: Pipeline,
    pub(super) live: LiveConnection,
}

impl Batch {
    /// Sends the write on a connection of the server, and awaits the response.
    pub(super) fn send(
        self,
        connection: Connection,
        response_timeout: Duration,
    ) -> impl Future<Output = Response> {
        let Self { number, pipeline, mut live } = self;
        async move {
            let response = timeout(response_timeout, connection.send_all(&mut live, &pipeline)).await;
            (number, response.unwrap_or(Err(SendError::Timeout)))
        }
    }
}
