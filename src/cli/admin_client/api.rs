//! Calls of the admin API.

use std::{fs, path::Path, sync::Arc, time::Duration};

use http::Response;
use rustls::crypto::ring;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::{
    Agent, Body,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

use super::failure::{Failure, Refusal};
use crate::settings::{AdminUrl, ConnectionSettings, Identity};
use tollgate_runtime::redact;

/// Time limit of a call: longer than the server's, so that the server reports a timeout.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Maximum size of a response: two versions of the largest rules, as JSON.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Header with the author, for servers without tokens.
const AUTHOR_HEADER: &str = "tollgate-author";

/// The API of one instance.
pub(super) struct Api {
    agent: Agent,
    url: AdminUrl,
    /// Headers that identify the caller.
    caller: Vec<(&'static str, String)>,
}

impl Api {
    pub(super) fn new(settings: &ConnectionSettings) -> Result<Self, Failure> {
        let token = settings.token_file.as_deref().map(token).transpose()?;
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(
                settings.authorities.as_deref().map(authorities).transpose()?.unwrap_or(RootCerts::WebPki),
            )
            .client_cert(settings.identity.as_ref().map(identity).transpose()?);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            // The token is for this server only, not for a proxy or a redirect target.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(tls.build());
        let token = token.map(|token| ("authorization", format!("Bearer {token}")));
        let author = settings.author.clone().map(|author| (AUTHOR_HEADER, author));
        let caller = token.into_iter().chain(author).collect();
        Ok(Self { agent: agent.build().into(), url: settings.url.clone(), caller })
    }

    pub(super) fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        let request = self.agent.get(self.path(path)).query_pairs(query.iter().copied());
        self.answer(self.by_caller(request).call())
    }

    pub(super) fn delete(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        let request = self.agent.delete(self.path(path)).query_pairs(query.iter().copied());
        self.answer(self.by_caller(request).call())
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let request = self.agent.post(self.path(path));
        self.answer(self.by_caller(request).send_json(body))
    }

    pub(super) fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let request = self.agent.put(self.path(path));
        self.answer(self.by_caller(request).send_json(body))
    }

    /// Decodes a response.
    pub(super) fn read<T: DeserializeOwned>(&self, answer: &Value) -> Result<T, Failure> {
        T::deserialize(answer).map_err(|_| self.stranger(200))
    }

    fn path(&self, path: &str) -> String {
        format!("{}/api/v1/{path}", self.url)
    }

    fn by_caller<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        self.caller.iter().fold(request, |request, (name, value)| request.header(*name, value))
    }

    fn answer(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<Value, Failure> {
        let unreachable = |error: ureq::Error| Failure::Unreachable {
            url: self.url.to_string(),
            reason: error.to_string(),
        };
        let (head, mut body) = answer.map_err(unreachable)?.into_parts();
        let text = body.with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(unreachable)?;
        let said: Option<Value> = match &*text {
            [] => Some(Value::Null),
            text => serde_json::from_slice(text).ok(),
        };
        let stranger = || self.stranger(head.status.as_u16());
        let said = said.ok_or_else(stranger)?;
        if head.status.is_success() {
            return Ok(said);
        }
        Refusal::read(said)
            .map_or_else(|| Err(stranger()), |refusal| Err(Failure::Refused(Box::new(refusal))))
    }

    fn stranger(&self, status: u16) -> Failure {
        Failure::Stranger { url: self.url.to_string(), status }
    }
}

fn token(file: &Path) -> Result<String, Failure> {
    let text = text("--token-file", file)?;
    let token = text.trim();
    let is_word = |byte: u8| byte.is_ascii_graphic();
    match !token.is_empty() && token.bytes().all(is_word) {
        true => Ok(token.to_owned()),
        false => Err(wrong("--token-file", file, "expected one token, without spaces in it")),
    }
}

fn authorities(file: &Path) -> Result<RootCerts, Failure> {
    Ok(RootCerts::new_with_certs(&certificates("--ca", file)?))
}

fn identity(identity: &Identity) -> Result<ClientCert, Failure> {
    let chain = certificates("--cert", &identity.certificate)?;
    let key = PrivateKey::from_pem(text("--key", &identity.key)?.as_bytes());
    let key = key.map_err(|_| wrong("--key", &identity.key, "holds no key in PEM form"))?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

fn certificates(flag: &str, file: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let text = text(flag, file)?;
    let items = parse_pem(text.as_bytes()).filter_map(Result::ok);
    let certificates = items.filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    match certificates.collect::<Vec<_>>() {
        none if none.is_empty() => Err(wrong(flag, file, "holds no certificate in PEM form")),
        some => Ok(some),
    }
}

fn text(flag: &str, file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| wrong(flag, file, &error.to_string()))
}

fn wrong(flag: &str, file: &Path, reason: &str) -> Failure {
    Failure::File { name: flag.to_owned(), reason: format!("{}: {reason}", redact::path(file)) }
}
