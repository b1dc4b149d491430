//! HTTP/1 servers.
//!
//! - `public` serves the rate-limit call as JSON, health and metrics.
//! - `admin` serves operators: the API, the dashboard, metrics and listings.
//! - `port` serves a router on a listening socket, with limits on connections and requests.

// Sums of lengths in memory, and times within ranges that are checked where requests are read.
#![allow(clippy::arithmetic_side_effects)]

pub mod cached_page;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod origin;
mod port;
mod public;
mod settings;

pub use self::cached_page::{CachedPage, plain_text};
pub use self::port::{ConnectionLimits, HttpPort};
pub use self::public::{
    DescriptorError, PublicParts, health_route, metrics_route, metrics_router, router as public_router,
};
pub use self::settings::{HttpSettings, MetricsSettings};
