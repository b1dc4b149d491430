//! Entry points of the fuzz targets in `fuzz/`, which tests call with the corpus. Each takes any bytes and panics on a bug.

#[cfg(test)]
mod tests;

pub use tollgate_rules::config::fuzz::configuration;
pub use tollgate_serve::grpc::fuzz::{framing, received_frames};
pub use tollgate_serve::http::fuzz::request;
pub use tollgate_store::fuzz::{keys, replies};
