//! Calls of the admin API.

use std::{path::Path, time::Duration};

use http::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate_runtime::{bounded_file, redact};
use ureq::{
    Agent, Body,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, parse_pem},
};

use super::error::{ApiError, ClientError};
use crate::{
    http_client,
    settings::{AdminUrl, ClientIdentity, ConnectionSettings},
};

/// Time limit of a call: longer than the server's, so that the server reports a timeout.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Maximum size of a response: two versions of the largest rules, as JSON.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Header with the author, for servers without tokens.
const AUTHOR_HEADER: &str = "tollgate-author";

/// Parameters of a query that are stated.
pub(super) fn stated<'a, const N: usize>(
    parameters: [(&'static str, Option<&'a str>); N],
) -> Vec<(&'static str, &'a str)> {
    parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The API of one instance.
pub(super) struct ApiClient {
    agent: Agent,
    url: AdminUrl,
    /// Headers that identify the caller.
    caller: Vec<(&'static str, String)>,
}

impl ApiClient {
    pub(super) fn new(settings: &ConnectionSettings) -> Result<Self, ClientError> {
        let token = settings.token_file.as_deref().map(token).transpose()?;
        let roots = settings.authorities.as_deref().map(authorities).transpose()?;
        let identity = settings.identity.as_ref().map(identity).transpose()?;
        let agent = http_client::agent(roots.unwrap_or(RootCerts::WebPki), identity, TIMEOUT);
        let token = token.map(|token| ("authorization", format!("Bearer {token}")));
        let author = settings.author.clone().map(|author| (AUTHOR_HEADER, author));
        let caller = token.into_iter().chain(author).collect();
        Ok(Self { agent, url: settings.url.clone(), caller })
    }

    pub(super) fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, ClientError> {
        let request = self.agent.get(self.path(path)).query_pairs(query.iter().copied());
        self.decode(self.by_caller(request).call())
    }

    pub(super) fn delete(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, ClientError> {
        let request = self.agent.delete(self.path(path)).query_pairs(query.iter().copied());
        self.decode(self.by_caller(request).call())
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        let request = self.agent.post(self.path(path));
        self.decode(self.by_caller(request).send_json(body))
    }

    pub(super) fn put(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        let request = self.agent.put(self.path(path));
        self.decode(self.by_caller(request).send_json(body))
    }

    /// Decodes a response.
    pub(super) fn read<T: DeserializeOwned>(&self, response: &Value) -> Result<T, ClientError> {
        T::deserialize(response).map_err(|_| self.not_admin_api(200))
    }

    fn path(&self, path: &str) -> String {
        format!("{}/api/v1/{path}", self.url)
    }

    fn by_caller<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        self.caller.iter().fold(request, |request, (name, value)| request.header(*name, value))
    }

    fn decode(&self, response: Result<Response<Body>, ureq::Error>) -> Result<Value, ClientError> {
        let unreachable = |error: ureq::Error| ClientError::Unreachable {
            url: self.url.to_string(),
            reason: error.to_string(),
        };
        let (head, mut body) = response.map_err(unreachable)?.into_parts();
        let text = body.with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(unreachable)?;
        let json: Option<Value> = match &*text {
            [] => Some(Value::Null),
            text => serde_json::from_slice(text).ok(),
        };
        let not_admin_api = || self.not_admin_api(head.status.as_u16());
        let json = json.ok_or_else(not_admin_api)?;
        if head.status.is_success() {
            return Ok(json);
        }
        ApiError::read(json)
            .map_or_else(|| Err(not_admin_api()), |error| Err(ClientError::Rejected(Box::new(error))))
    }

    fn not_admin_api(&self, status: u16) -> ClientError {
        ClientError::NotAdminApi { url: self.url.to_string(), status }
    }
}

fn token(file: &Path) -> Result<String, ClientError> {
    let text = read_file("--token-file", file)?;
    let token = text.trim();
    let is_word = |byte: u8| byte.is_ascii_graphic();
    match !token.is_empty() && token.bytes().all(is_word) {
        true => Ok(token.to_owned()),
        false => Err(unusable_file("--token-file", file, "expected one token, without spaces in it")),
    }
}

fn authorities(file: &Path) -> Result<RootCerts, ClientError> {
    Ok(RootCerts::new_with_certs(&certificates("--ca", file)?))
}

fn identity(identity: &ClientIdentity) -> Result<ClientCert, ClientError> {
    let chain = certificates("--cert", &identity.certificate)?;
    let key = PrivateKey::from_pem(read_file("--key", &identity.key)?.as_bytes());
    let key = key.map_err(|_| unusable_file("--key", &identity.key, "holds no key in PEM form"))?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

fn certificates(flag: &str, file: &Path) -> Result<Vec<Certificate<'static>>, ClientError> {
    let text = read_file(flag, file)?;
    let items = parse_pem(text.as_bytes()).filter_map(Result::ok);
    let certificates = items.filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    match certificates.collect::<Vec<_>>() {
        none if none.is_empty() => Err(unusable_file(flag, file, "holds no certificate in PEM form")),
        some => Ok(some),
    }
}

fn read_file(flag: &str, file: &Path) -> Result<String, ClientError> {
    bounded_file::read_text(file, bounded_file::MAX_BYTES)
        .map_err(|error| unusable_file(flag, file, &error.to_string()))
}

fn unusable_file(flag: &str, file: &Path, reason: &str) -> ClientError {
    ClientError::File { name: flag.to_owned(), reason: format!("{}: {reason}", redact::path(file)) }
}
