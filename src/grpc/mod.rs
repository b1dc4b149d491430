//! gRPC server: HTTP/2 connections, admission control, and the unary path of `ShouldRateLimit`.
//!
//! ```text
//! connection ──> dispatch ──┬──> overload ──> unary ──> request_body ──> service ──> response_body
//!                           └──> health, reflection
//! ```

pub(crate) mod connection;
mod deadline;
pub(crate) mod dispatch;
mod frame_scanner;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod health;
mod lease_watch;
mod overload;
mod protocol;
pub(crate) mod request_body;
mod response_body;
pub(crate) mod service;
mod shed_call;
mod stalled_reader;
#[cfg(test)]
mod tests;
pub(crate) mod unary;
mod unread_leases;
