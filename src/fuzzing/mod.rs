//! What the fuzzer of `fuzz/` calls, and what tests call with its corpus: each takes any bytes, and panics where something
//! is wrong. Compiled for them alone.

#[cfg(test)]
mod tests;

pub use crate::{
    config::fuzzing::configuration,
    grpc::fuzzing::framing,
    http::fuzzing::request,
    store::{key::fuzzing::keys, redis::replies},
};
