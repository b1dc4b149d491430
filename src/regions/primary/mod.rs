//! Decisions on limits with `scope: primary`: by one region for all of them.
//!
//! - [`role`]: which region it is, and the change of it.
//! - [`client`]: sends calls to the primary region; [`exchange`]: one message and its reply.
//! - [`breaker`]: pauses them while it does not reply.
//! - [`server`]: decides the calls of other regions.
//! - [`wire`]: the messages.
//!
//! A call is sent once. Without a reply in time, the rule's `on_store_error` decides.

mod breaker;
mod client;
mod exchange;
mod role;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use self::{
    client::{MAX_CALLS, send_all},
    role::Primacy,
    server::PrimaryServer,
};
