//! Decisions on limits with `scope: primary`: by one region for all of them.
//!
//! - [`role`]: which region it is, and the change of it.
//! - [`asker`]: sends calls to the primary region; [`exchange`]: one message and its reply.
//! - [`breaker`]: pauses them while it does not reply.
//! - [`answerer`]: decides the calls of other regions.
//! - [`wire`]: the messages.
//!
//! A call is sent once. Without a reply in time, the rule's `on_store_error` decides.

mod answerer;
mod asker;
mod breaker;
mod exchange;
mod role;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use self::{
    answerer::Answerer,
    asker::{MAX_CALLS, ask_all},
    role::Primacy,
};
