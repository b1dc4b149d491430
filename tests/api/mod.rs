//! The admin API, by real servers.

mod abuse;
mod addresses;
mod authorization;
mod bans;
mod versions;
mod counters;
mod openapi;
mod instances;
mod lists;
mod records;
mod store_outage;

use crate::support::{prelude::*, timing::keeps_to};

/// A client of the API of an instance.
#[derive(Clone, Debug)]
struct Admin {
    url: String,
    headers: Vec<(&'static str, String)>,
}

/// A status, and the body.
type Answered = (u16, Value);

impl Admin {
    fn of(tollgate: &Tollgate) -> Self {
        Self { url: tollgate.admin_url("/api/v1"), headers: Vec::new() }
    }

    fn with(&self, name: &'static str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.push((name, value.to_owned()));
        Self { headers, ..self.clone() }
    }

    fn with_token(&self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Answered {
        let headers: Vec<(&str, &str)> = self.headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let body = body.map(Value::to_string);
        let answer = http::send(method, &format!("{}{path}", self.url), &headers, body.as_deref());
        let value = match answer.body.as_str() {
            "" => Value::Null,
            body => serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {body}")),
        };
        (answer.status, value)
    }

    fn get(&self, path: &str) -> Value {
        let (status, value) = self.request("GET", path, None);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    fn post(&self, path: &str, body: &Value) -> Answered {
        self.request("POST", path, Some(body))
    }

    /// Sends what has to succeed so.
    fn done(&self, method: &str, path: &str, body: &Value, expected: u16) -> Value {
        let (status, value) = self.request(method, path, Some(body));
        assert_eq!(status, expected, "{path}: {value}");
        value
    }

    /// Puts a record, which is stated with a reason.
    fn try_put(&self, record: &Value) -> Answered {
        self.request("PUT", "/records", Some(&http::stated(record)))
    }

    /// Puts a record, and returns it.
    fn put(&self, record: &Value) -> Value {
        self.done("PUT", "/records", &http::stated(record), 200)["records"][0].clone()
    }

    /// Removes a record.
    fn remove(&self, record: &Value) -> Answered {
        let key = record["key"].as_str().expect("a key");
        self.request("DELETE", &format!("/records/{key}"), None)
    }

    fn apply(&self, based_on: impl Into<Value>, text: &str) -> Answered {
        self.post("/versions", &draft(based_on, text))
    }

    /// The number of the version that is current by now.
    fn current(&self) -> u64 {
        self.get("/versions")["current"].as_u64().expect("a version")
    }
}

fn draft(based_on: impl Into<Value>, text: &str) -> Value {
    json!({ "based_on": based_on.into(), "comment": "why", "files": { "rules.yaml": text } })
}

/// Some members of an object.
fn members<const N: usize>(value: &Value, names: [&str; N]) -> Value {
    names.iter().map(|name| value[*name].clone()).collect()
}

fn code((status, body): &Answered) -> (u16, &str) {
    (*status, body["error"]["code"].as_str().unwrap_or_default())
}

/// Rules with a limit for each value of `k`.
fn limit(limit: u32) -> String {
    format!("domain: web\ndescriptors:\n- key: k\n  rate_limit: {{unit: year, requests_per_unit: {limit}}}\n")
}

/// The descriptor `k=value`.
fn k(value: &str) -> Value {
    json!([{ "key": "k", "value": value }])
}
