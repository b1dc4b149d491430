//! Plain HTTP requests.

use std::time::Duration;

use ureq::Agent;

/// A response.
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

    /// The body, which is JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(30)))
        .build()
        .into()
}

fn answer(response: http::Response<ureq::Body>) -> Answer {
    let (parts, mut body) = response.into_parts();
    let body = body.read_to_string().expect("a text");
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// Requests a page; none if no server answers.
pub(crate) fn try_get(url: &str) -> Option<Answer> {
    agent().get(url).call().ok().map(answer)
}

/// Requests a page.
pub(crate) fn get(url: &str) -> Answer {
    try_get(url).expect("an answer")
}

/// Requests a page with headers.
pub(crate) fn get_as(url: &str, headers: &[(&str, &str)]) -> Answer {
    let request =
        headers.iter().fold(agent().get(url), |request, (name, value)| request.header(*name, *value));
    answer(request.call().expect("an answer"))
}

/// Requests a page with an `Authorization`.
pub(crate) fn get_with(url: &str, authorization: &str) -> Answer {
    answer(agent().get(url).header("authorization", authorization).call().expect("an answer"))
}

/// Sends a body.
pub(crate) fn post(url: &str, body: &str) -> Answer {
    answer(agent().post(url).content_type("application/json").send(body).expect("an answer"))
}

/// The body that puts a record, which is stated with the reason of the change and its `force`.
pub(crate) fn stated(record: &serde_json::Value) -> serde_json::Value {
    let mut fields = record.as_object().cloned().unwrap_or_default();
    let [reason, force] = ["reason", "force"].map(|name| fields.remove(name).unwrap_or_default());
    serde_json::json!({"records": [fields], "reason": reason, "force": force == true})
}

/// Sends a request with these headers, and a body that is JSON unless they say otherwise.
pub(crate) fn send(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
    let mut request = http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if body.is_some() && !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    let answered = match body.filter(|_| ["POST", "PUT"].contains(&method)) {
        Some(body) => agent().run(request.body(body.to_owned()).expect("a request")),
        None => agent().run(request.body(()).expect("a request")),
    };
    answer(answered.expect("an answer"))
}
