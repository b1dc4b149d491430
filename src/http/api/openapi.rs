//! `GET /openapi.json`: what all of this is, for programs.

use axum::{http::header::CONTENT_TYPE, response::IntoResponse};

/// The document.
pub(in crate::http) async fn show() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], include_str!("openapi.json"))
}
