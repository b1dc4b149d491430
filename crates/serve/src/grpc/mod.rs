//! gRPC server: HTTP/2 connections, admission control, and the unary path of `ShouldRateLimit`.
//!
//! ```text
//! connection ──> http2 ──> dispatch ──┬──> overload ──> unary ──> request_body ──> service ──> response_body
//!                                     └──> health, reflection, reservations
//! ```

mod call_headers;
pub mod connection;
pub mod dispatch;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod health;
pub mod listener;
pub mod http2;
mod overload;
pub mod request_body;
mod reservations;
mod response_body;
mod settings;
pub mod service;
#[cfg(test)]
mod tests;
pub mod unary;
pub mod unread_responses;

pub use self::settings::{GrpcListen, GrpcSettings};
