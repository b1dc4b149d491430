//! gRPC server: HTTP/2 connections, admission control, and the unary path of `ShouldRateLimit`.
//!
//! ```text
//! connection ──> http2 ──> dispatch ──┬──> overload ──> unary ──> request_body ──> service ──> response_body
//!                                     └──> health, reflection, reservations
//! ```

mod call_headers;
pub(crate) mod connection;
pub(crate) mod dispatch;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod health;
pub(crate) mod http2;
mod overload;
pub(crate) mod request_body;
mod reservations;
mod response_body;
pub(crate) mod service;
#[cfg(test)]
mod tests;
pub(crate) mod unary;
pub(crate) mod unread_responses;
