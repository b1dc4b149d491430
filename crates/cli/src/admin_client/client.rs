//! Calls of the admin API, and their errors.

use std::{fmt, path::Path, time::Duration};

use http::Response;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tollgate_control::{RecordView, Version};
use tollgate_flags::KeyPair;
use tollgate_runtime::{bounded_file, http_client, redact};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts};
use ureq::{Agent, Body, RequestBuilder};

use super::output::{CommandOutput, escape, escape_line};
use super::record_text::line;
use crate::flags::ConnectionSettings;

/// Time limit of a call: longer than the server's, so that the server reports a timeout.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Maximum size of a response: two versions of the largest rules, as JSON.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Header with the author, for servers without tokens.
const AUTHOR_HEADER: &str = "tollgate-author";

/// Name and value of a query parameter.
pub(super) type Parameter<'a> = (&'static str, Option<&'a str>);

/// The API of one instance.
pub(super) struct ApiClient {
    agent: Agent,
    url: String,
    /// Headers that identify the caller.
    caller: Vec<(&'static str, String)>,
}

impl ApiClient {
    pub(super) fn new(settings: &ConnectionSettings) -> Result<Self, ClientError> {
        let token = settings.token_file.as_deref().map(token).transpose()?;
        let roots = match &settings.ca {
            Some(file) => RootCerts::new_with_certs(&certificates("--ca", file)?),
            None => RootCerts::WebPki,
        };
        let identity = settings.cert.as_ref().map(identity).transpose()?;
        let agent = http_client::agent(roots, identity, TIMEOUT);
        let token = token.map(|token| ("authorization", format!("Bearer {token}")));
        let author = settings.author.clone().map(|author| (AUTHOR_HEADER, author));
        let caller = token.into_iter().chain(author).collect();
        Ok(Self { agent, url: settings.admin_url.clone(), caller })
    }

    /// Calls with the parameters that are stated.
    pub(super) fn get(&self, path: &str, query: &[Parameter<'_>]) -> Result<Value, ClientError> {
        self.decode(self.by_caller(self.agent.get(self.path(path)), query).call())
    }

    /// Calls, and decodes the list that has the name of the path.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[Parameter<'_>],
    ) -> Result<(Vec<T>, Value), ClientError> {
        let json = self.get(path, query)?;
        Ok((self.field(&json, path)?, json))
    }

    pub(super) fn delete(&self, path: &str, query: &[Parameter<'_>]) -> Result<(), ClientError> {
        self.decode(self.by_caller(self.agent.delete(self.path(path)), query).call()).map(drop)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.decode(self.by_caller(self.agent.post(self.path(path)), &[]).send_json(body))
    }

    pub(super) fn put(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.decode(self.by_caller(self.agent.put(self.path(path)), &[]).send_json(body))
    }

    /// The output for a response: its JSON, and the text that `text` makes of its content.
    pub(super) fn output<T: DeserializeOwned>(
        &self,
        json: Value,
        text: impl FnOnce(&T) -> String,
    ) -> Result<CommandOutput, ClientError> {
        Ok(CommandOutput { text: text(&self.read(&json)?), json })
    }

    /// Decodes a response.
    pub(super) fn read<T: DeserializeOwned>(&self, response: &Value) -> Result<T, ClientError> {
        T::deserialize(response).map_err(|_| self.not_admin_api(200))
    }

    /// Decodes a field of a response; an absent one is null.
    pub(super) fn field<T: DeserializeOwned>(&self, response: &Value, name: &str) -> Result<T, ClientError> {
        self.read(response.get(name).unwrap_or(&Value::Null))
    }

    fn path(&self, path: &str) -> String {
        format!("{}/api/v1/{path}", self.url)
    }

    fn by_caller<B>(&self, request: RequestBuilder<B>, query: &[Parameter<'_>]) -> RequestBuilder<B> {
        let stated = query.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
        let request = request.query_pairs(stated);
        self.caller.iter().fold(request, |request, (name, value)| request.header(*name, value))
    }

    fn decode(&self, response: Result<Response<Body>, ureq::Error>) -> Result<Value, ClientError> {
        let unreachable = |error: ureq::Error| ClientError::Failed {
            code: "unreachable",
            message: format!("{} is unreachable: {error}", self.url),
        };
        let (head, mut body) = response.map_err(unreachable)?.into_parts();
        let text = body.with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(unreachable)?;
        let json = if text.is_empty() { Some(Value::Null) } else { serde_json::from_slice(&text).ok() };
        match json {
            Some(json) if head.status.is_success() => Ok(json),
            json => Err(json.and_then(ApiError::read).map_or_else(
                || self.not_admin_api(head.status.as_u16()),
                |error| ClientError::Rejected(Box::new(error)),
            )),
        }
    }

    fn not_admin_api(&self, status: u16) -> ClientError {
        let url = &self.url;
        let message =
            format!("unexpected response from {url} (HTTP status {status}); expected the admin API");
        ClientError::Failed { code: "unreachable", message }
    }
}

fn token(file: &Path) -> Result<String, ClientError> {
    let text = read_file("--token-file", file)?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable_file("--token-file", file, "expected one token, without spaces in it"));
    }
    Ok(token.to_owned())
}

fn identity(identity: &KeyPair) -> Result<ClientCert, ClientError> {
    let chain = certificates("--cert", &identity.certificate)?;
    let key = PrivateKey::from_pem(read_file("--cert", &identity.key)?.as_bytes());
    let key = key.map_err(|_| unusable_file("--cert", &identity.key, "holds no key in PEM form"))?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

fn certificates(flag: &str, file: &Path) -> Result<Vec<Certificate<'static>>, ClientError> {
    let text = read_file(flag, file)?;
    let certificates = http_client::certificates(text.as_bytes());
    if certificates.is_empty() {
        return Err(unusable_file(flag, file, "holds no certificate in PEM form"));
    }
    Ok(certificates)
}

fn read_file(flag: &str, file: &Path) -> Result<String, ClientError> {
    bounded_file::read_text(file, bounded_file::MAX_BYTES)
        .map_err(|error| unusable_file(flag, file, &error.to_string()))
}

fn unusable_file(flag: &str, file: &Path, reason: &str) -> ClientError {
    ClientError::of_file(flag, format_args!("{}: {reason}", redact::path(file)))
}

/// Error of a call. Contains no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// Rejected by the API.
    #[error("{0}")]
    Rejected(Box<ApiError>),
    /// Invalid rules in a directory, with the report of `check`.
    #[error("{0}")]
    Invalid(String),
    /// Any other error, with its code.
    #[error("{message}")]
    Failed {
        /// Code, as in errors of the API.
        code: &'static str,
        /// Violation.
        message: String,
    },
}

/// Error response of the API.
#[derive(Debug, Deserialize)]
pub(super) struct ApiError {
    code: String,
    message: String,
    /// Problems of the rules, as `check` prints them.
    report: Option<String>,
    #[serde(default)]
    reasons: Vec<Violation>,
    /// Present version or record, which is not the base.
    current: Option<Current>,
    /// The whole response.
    #[serde(skip)]
    response: Value,
}

/// A version or a record that is current.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Current {
    Version(Version),
    Record(RecordView),
}

/// A guardrail that a change violates.
#[derive(Debug, Deserialize)]
pub(super) struct Violation {
    domain: String,
    message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", escape_line(&self.domain), escape_line(&self.message))
    }
}

impl ApiError {
    /// Decodes an error response; `None` for any other.
    fn read(response: Value) -> Option<Self> {
        let error = Self::deserialize(response.get("error")?).ok()?;
        Some(Self { response, ..error })
    }
}

impl ClientError {
    /// The error of an unusable file, or of something that has the name of one.
    pub(super) fn of_file(name: &str, reason: impl fmt::Display) -> Self {
        Self::Failed { code: "file", message: format!("{name}: {reason}") }
    }

    /// The error as text, and as JSON in the form of the API.
    pub(super) fn output(&self) -> CommandOutput {
        let json = match self {
            Self::Rejected(error) => error.response.clone(),
            Self::Invalid(report) => {
                json!({ "error": { "code": "invalid", "message": "the rules are not valid", "report": report } })
            }
            Self::Failed { code, message } => json!({ "error": { "code": code, "message": message } }),
        };
        CommandOutput { text: format!("{self}\n"), json }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = &self.report {
            return f.write_str(escape(report).trim_end());
        }
        write!(f, "refused ({}): {}", escape_line(&self.code), escape_line(&self.message))?;
        for violation in &self.reasons {
            write!(f, "\n  {violation}")?;
        }
        if !self.reasons.is_empty() {
            f.write_str("\nuse --force to apply it anyway")?;
        }
        match &self.current {
            Some(Current::Version(Version { number, comment, .. })) => {
                write!(f, "\nversion {number}: {}\nnothing was changed", escape_line(comment))
            }
            Some(Current::Record(view)) => {
                write!(f, "\nrevision {}: {}nothing was changed", view.revision, line(view))
            }
            None => Ok(()),
        }
    }
}
