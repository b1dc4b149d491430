//! gRPC server: HTTP/2 connections, admission control, and the unary path of `ShouldRateLimit`.
//!
//! ```text
//! connection ──> frame_filter ──> dispatch ──┬──> overload ──> unary ──> request_body ──> service ──> response_body
//!                                            └──> health, reflection
//! ```

pub(crate) mod connection;
mod deadline;
pub(crate) mod dispatch;
mod frame_filter;
mod frame_scanner;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod header_block;
mod health;
pub(crate) mod http2_errors;
mod huffman;
mod overload;
mod protocol;
mod received_frames;
mod refusals;
pub(crate) mod request_body;
mod reservations;
mod response_body;
pub(crate) mod service;
mod shed_call;
pub(crate) mod stalled_reader;
#[cfg(test)]
mod tests;
pub(crate) mod unary;
mod unread_leases;
