//! The edge of the network: what every port does before a request is looked at.
//!
//! - [`tls`]: certificates that change while the process runs, and who may connect.
//! - `guard`: connections that neither begin nor take what is sent are closed.
//! - `bind`: how a TCP port is opened.
//! - `gate`: how many connections there may be, and what is logged of those that cannot be had.

pub(crate) mod bind;
pub(crate) mod gate;
pub(crate) mod guard;
mod opening;
pub mod tls;
