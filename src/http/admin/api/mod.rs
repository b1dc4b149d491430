//! The admin API: REST and JSON under `/api/v1`, described by `openapi.json`.
//!
//! - `routes` is the table of paths, with the role that each requires.
//! - `extract` has the extractors of requests, `response` and `error` the forms of responses.
//! - `origin_check` refuses requests that a web page of another origin makes an operator's browser send.
//! - `limits` bounds expensive work: it runs on blocking threads, a few tasks at a time. `timeouts` bounds calls to the
//!   control store.
//! - Each other file serves one resource.

mod bans;
pub(crate) mod counters;
pub(crate) mod diff;
mod draft;
mod dry_run;
mod dry_run_view;
mod error;
mod extract;
mod files;
mod guardrails;
mod limits;
mod lists;
mod logs;
mod me;
mod origin_check;
mod overrides;
mod regions;
mod response;
mod rollouts;
mod routes;
mod rules;
mod state;
mod status;
mod switches;
pub(crate) mod talkers;
mod timeouts;
mod validate;
mod versions;

pub use self::state::{ApiParts, StoreInfo};
pub(super) use self::{
    error::ApiError,
    origin_check::refuse_other_origins,
    routes::{openapi, routes},
};
