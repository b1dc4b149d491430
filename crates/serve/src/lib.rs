//! The network services: Envoy's rate-limit service over gRPC and as JSON, reservations, health and metrics.
//!
//! - [`grpc`] serves HTTP/2: admission, messages, deadlines, and permits that responses hold.
//! - [`service`] turns a protobuf message into descriptors, and a decision into a response.
//! - [`http`] serves HTTP/1: the public port, and the listener of the admin port.
//! - [`net`] accepts connections, with TLS and limits.
//! - [`readiness`] is the phase of the process.

// Numbers that a user or the wire states are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]
// Connections, futures and closures have none that would help.
#![allow(missing_debug_implementations)]

pub mod readiness;
pub mod net;
pub mod service;
pub mod grpc;
pub mod http;
