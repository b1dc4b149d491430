//! The edge of the network: what every port does before a request is looked at.
//!
//! - [`tls`]: certificates that change while the process runs, and who may connect.
//! - `stall_timeout`: connections that neither begin nor take what is sent are closed.
//! - `bind`: how a TCP port is opened.
//! - `accept_limit`: how many connections there may be, and what is logged of those that cannot be had.

pub(crate) mod accept_limit;
pub(crate) mod bind;
mod http2_preface;
pub(crate) mod stall_timeout;
pub mod tls;
