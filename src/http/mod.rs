//! HTTP/1 servers.
//!
//! - `public` serves the rate-limit call as JSON, health and metrics.
//! - `admin` serves operators: the API, the dashboard, metrics and listings.
//! - `port` serves a router on a listening socket, with limits on connections and requests.

// Sums of lengths in memory, and times within ranges that are checked where requests are read.
#![allow(clippy::arithmetic_side_effects)]

pub(crate) mod admin;
mod cached_page;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod origin;
mod port;
mod public;

pub(crate) use self::port::{ConnectionLimits, HttpPort};
pub use self::{
    admin::{
        AdminParts, ApiParts, METRICS as ADMIN_METRICS, StoreInfo, TokenError, Tokens, router as admin_router,
    },
    public::{DescriptorError, PublicParts, metrics_router, router as public_router},
};
