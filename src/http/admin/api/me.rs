//! `GET /me`: the caller's name and role.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde_json::json;

use super::{
    response::{self, ApiResult},
    state::Api,
};
use crate::http::admin::auth::Caller;

/// Returns the caller's name and role.
pub(super) async fn show(State(api): State<Arc<Api>>, Extension(caller): Extension<Caller>) -> ApiResult {
    response::json(&json!({
        "name": caller.name,
        "role": caller.role,
        "is_token_required": api.is_token_required,
    }))
}
