//! Entry points of the fuzz targets in `fuzz/`, which tests call with the corpus. Each takes any bytes and panics on a bug.

#[cfg(test)]
mod tests;

pub use tollgate_rules::config::fuzzing::configuration;
pub use tollgate_serve::{
    grpc::fuzzing::{framing, received_frames},
    http::fuzzing::request,
};
pub use tollgate_store::fuzz::{keys, replies};
