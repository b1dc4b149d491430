//! Entry points of the fuzz targets in `fuzz/`, which tests call with the corpus. Each takes any bytes and panics on a bug.

#[cfg(test)]
mod tests;

pub use crate::{
    config::fuzzing::configuration,
    grpc::fuzzing::framing,
    http::fuzzing::request,
    store::{key::fuzzing::keys, redis::replies},
};
