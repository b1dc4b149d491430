//! Network edge shared by all ports: everything before a request is parsed.
//!
//! - [`tls`]: certificates that are reloaded at run time, and client certificates.
//! - `stall_timeout`: closes connections that never send an HTTP/2 preface, or stop reading.
//! - `read_budget`: bounds what a connection reads before others are served.
//! - `accept`: opens TCP ports, bounds the number of connections, and closes idle ones for which others have no room.
//! - `unfinished`: bounds the memory of messages that have begun to arrive.

pub mod accept;
pub mod metrics;
pub mod read_budget;
pub mod stall_timeout;
mod settings;
pub mod tls;
pub mod unfinished;

pub use self::settings::{ClientSettings, ConnectionSettings, Port, TlsFile, TlsSettings};
