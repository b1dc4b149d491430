//! Network edge shared by all ports: everything before a request is parsed.
//!
//! - [`tls`]: certificates that are reloaded at run time, and client certificates.
//! - `stall_timeout`: closes connections that never send an HTTP/2 preface, or stop reading.
//! - `read_budget`: bounds what a connection reads before others are served.
//! - `bind`: opens TCP ports.
//! - `accept_limit`: bounds the number of connections, and logs accept failures.
//! - `idle_connections`: closes those for which others have no room.
//! - `unfinished`: bounds the memory of messages that have begun to arrive.

pub(crate) mod accept_limit;
pub(crate) mod bind;
mod http2_preface;
pub(crate) mod idle_connections;
pub mod metrics;
pub(crate) mod read_budget;
pub(crate) mod stall_timeout;
pub mod tls;
pub(crate) mod unfinished;
