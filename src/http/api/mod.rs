//! What operators see and change: REST and JSON under `/api/v1`, as `openapi.json` describes it.
//!
//! - `routes` is the table of paths, each with the role that it takes.
//! - `browser` keeps out what a web page from elsewhere makes an operator's browser do.
//! - Each other file answers one resource.
//!
//! Nothing here waits for a store for more than a moment, and what takes long runs on threads of its own, a few at a
//! time.

mod answer;
mod apply;
mod audit;
mod body;
mod browser;
mod compare;
mod counters;
mod current;
mod diff;
mod draft;
mod error;
mod explained;
mod heavy;
mod history;
mod listed;
mod lists;
mod me;
mod openapi;
mod parts;
mod patch;
mod query;
mod reason;
mod request;
mod routes;
mod safety;
mod status;
mod switches;
mod trial;
mod validate;
mod versions;
mod wait;
mod whole;

pub use self::parts::{ApiParts, StoreFacts};
pub(super) use self::{browser::keep_out, error::ApiError, openapi::show as openapi, routes::routes};
