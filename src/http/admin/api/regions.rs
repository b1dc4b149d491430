//! `GET /regions`: the regions that enforce limits together, as this instance has them.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value, json};

use super::{
    response::{self, ApiResult},
    state::Api,
};

/// Returns the regions, without a region table none, and the state of copied rules.
pub(super) async fn show(State(api): State<Arc<Api>>) -> ApiResult {
    let view = api.parts.regions.as_ref().map(|regions| regions.view());
    let mut body = match view.map(serde_json::to_value) {
        Some(Ok(Value::Object(view))) => view,
        _ => serde_json::Map::from_iter([
            ("region".to_owned(), Value::Null),
            ("regions".to_owned(), json!([])),
        ]),
    };
    body.insert("rules".to_owned(), json!(api.parts.status.now().copy));
    response::json(&Value::Object(body))
}
