//! gRPC server: HTTP/2 connections, admission control, and the unary path of `ShouldRateLimit`.
//!
//! ```text
//! http2 ──> connection ──┬──> overload ──> unary ──> request_body ──> responses
//!                        └──> health, reflection, reservations
//! ```

pub mod connection;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod health;
pub mod listener;
pub mod http2;
mod overload;
pub mod request_body;
mod reservations;
pub mod responses;
mod settings;
#[cfg(test)]
mod tests;
pub mod unary;

pub use self::settings::{GrpcListen, GrpcSettings};
