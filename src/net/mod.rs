//! Network edge shared by all ports: everything before a request is parsed.
//!
//! - [`tls`]: certificates that are reloaded at run time, and client certificates.
//! - `stall_timeout`: closes connections that never send an HTTP/2 preface, or stop reading.
//! - `read_budget`: bounds what a connection reads before others are served.
//! - `bind`: opens TCP ports.
//! - `accept_limit`: bounds the number of connections, and logs accept failures.

pub(crate) mod accept_limit;
pub(crate) mod bind;
mod http2_preface;
pub mod metrics;
pub(crate) mod read_budget;
pub(crate) mod stall_timeout;
pub mod tls;
