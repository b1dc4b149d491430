//! `GET /me`: who asks.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde_json::json;

use super::{
    answer::{self, Answer},
    parts::Api,
};
use crate::http::access::Caller;

/// Says who asks, and what they may do.
pub(super) async fn show(State(api): State<Arc<Api>>, Extension(caller): Extension<Caller>) -> Answer {
    answer::json(&json!({
        "name": caller.name,
        "role": caller.role,
        "is_token_required": api.is_token_required,
    }))
}
