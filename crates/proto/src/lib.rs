//! The generated protobuf types, in one module for each package.
//!
//! Used only at the edges: by the gRPC service, its JSON endpoint, the xDS client, which converts resources into rules, and
//! for what regions send each other, copies of rules included. The other crates use types of their own.

// Generated code is exempt from this crate's lints.
#![allow(
    missing_docs,
    unused_qualifications,
    rust_2018_idioms,
    clippy::semicolon_if_nothing_returned,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]

include!(concat!(env!("OUT_DIR"), "/proto.rs"));

/// Descriptors of the services that tollgate serves, for reflection and JSON.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
