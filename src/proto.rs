//! The generated protobuf types, laid out in modules as in their packages.
//!
//! Used only at the edges: by the gRPC service, its JSON endpoint, and the xDS client, which converts resources into rules.
//! The other modules use [`descriptor`](tollgate_core::descriptor) and [`verdict`](tollgate_limiter::decision).

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
        pub mod discovery {
            pub mod v3 {
                tonic::include_proto!("envoy.service.discovery.v3");
            }
        }
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

/// `google.*`
pub mod google {
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}

/// `ratelimit.*`
pub mod ratelimit {
    pub mod config {
        pub mod ratelimit {
            pub mod v3 {
                tonic::include_proto!("ratelimit.config.ratelimit.v3");
            }
        }
    }
}

/// `tollgate.*`
pub mod tollgate {
    pub mod reservation {
        pub mod v1 {
            tonic::include_proto!("tollgate.reservation.v1");
        }
    }
    pub mod region {
        pub mod v1 {
            tonic::include_proto!("tollgate.region.v1");
        }
    }
}

/// Descriptors of the served part of `proto/` and of its imports, encoded as a `FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
