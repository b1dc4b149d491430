//! Network edge shared by all ports: everything before a request is parsed.
//!
//! - [`tls`]: certificates that are reloaded at run time, and client certificates.
//! - `stall_timeout`: closes connections that never send an HTTP/2 preface, or stop reading.
//! - `read_budget`: bounds what a connection reads before others are served.
//! - `accept`: opens TCP ports, bounds the number of connections, and closes idle ones for which others have no room.
//! - `unfinished`: bounds the memory of messages that have begun to arrive.

pub(crate) mod accept;
pub mod metrics;
pub(crate) mod read_budget;
pub(crate) mod stall_timeout;
pub mod tls;
pub(crate) mod unfinished;
