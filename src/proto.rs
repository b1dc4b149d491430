//! The generated protobuf types, laid out in modules as in their packages.
//!
//! Only the edges use them: the gRPC service, its JSON twin, and the client of `tollgate load`. The rest of the crate speaks
//! [`descriptor`](crate::descriptor) and [`verdict`](crate::verdict).

// Generated code is not held to this crate's lints.
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

/// `envoy.*`
pub mod envoy {
    /// `envoy.config.*`
    pub mod config {
        pub mod core {
            pub mod v3 {
                tonic::include_proto!("envoy.config.core.v3");
            }
        }
    }
    /// `envoy.extensions.*`
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    tonic::include_proto!("envoy.extensions.common.ratelimit.v3");
                }
            }
        }
    }
    /// `envoy.service.*`
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                tonic::include_proto!("envoy.service.ratelimit.v3");
            }
        }
    }
    /// `envoy.type.*`
    pub mod r#type {
        pub mod v3 {
            tonic::include_proto!("envoy.r#type.v3");
        }
    }
}

/// Every descriptor of `proto/` and of what it imports, encoded as a `FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
