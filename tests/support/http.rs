//! Plain HTTP requests.

use std::time::Duration;

use ureq::Agent;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into()
}

fn answer(response: http::Response<ureq::Body>) -> Answer {
    let (parts, mut body) = response.into_parts();
    let body = body.read_to_string().expect("a text");
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// Asks for a page; nothing when nobody answers.
pub(crate) fn try_get(url: &str) -> Option<Answer> {
    agent().get(url).call().ok().map(answer)
}

/// Asks for a page.
pub(crate) fn get(url: &str) -> Answer {
    try_get(url).expect("an answer")
}

/// Asks for a page with an `Authorization`.
pub(crate) fn get_with(url: &str, authorization: &str) -> Answer {
    answer(agent().get(url).header("authorization", authorization).call().expect("an answer"))
}

/// Sends a body.
pub(crate) fn post(url: &str, body: &str) -> Answer {
    answer(agent().post(url).content_type("application/json").send(body).expect("an answer"))
}
