//! Where counters live.

pub mod memory;
pub mod redis;

pub use self::{memory::MemoryStore, redis::RedisStore};

/// A store, as one worker uses it.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this process; its limits hold for this instance alone.
    Memory(MemoryStore),
    /// In a Redis that instances share.
    Redis(RedisStore),
}

/// Why a store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer within the deadline; whether anything was charged is unknown.
    #[error("no answer in time")]
    Timeout,
    /// No connection, or it broke; whether anything was charged is unknown.
    #[error("no connection: {0}")]
    Disconnected(String),
    /// The store answered with an error.
    #[error("refused: {0}")]
    Refused(String),
}
