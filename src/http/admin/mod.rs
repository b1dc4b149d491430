//! Admin port: the API, the dashboard, metrics and listings, for operators only.

pub(crate) mod api;
mod auth;
mod dashboard;
mod pprof_notice;
mod rlconfig;
mod router;

pub use self::{
    api::{ApiParts, StoreInfo},
    auth::{METRICS, TokenError, Tokens},
    router::{AdminParts, router},
};
