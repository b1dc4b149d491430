//! HTTP client of the admin commands, of the webhook and of exporters. Blocks.

use std::{path::Path, sync::Arc, time::Duration};

use rustls::crypto::ring;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::{bounded_file, redact};

/// A client that trusts `roots`, presents `identity`, and fails a request after `timeout`. Responses of every status are
/// returned. Credentials are for the stated server only: neither a proxy nor a redirect is followed.
pub fn agent(roots: RootCerts, identity: Option<ClientCert>, timeout: Duration) -> Agent {
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(roots)
        .client_cert(identity);
    let agent = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(timeout))
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .tls_config(tls.build());
    agent.build().into()
}

/// The CAs in a PEM file, or the Mozilla root CAs.
pub fn roots(file: Option<&Path>) -> Result<RootCerts, String> {
    let Some(file) = file else { return Ok(RootCerts::WebPki) };
    let shown = redact::path(file);
    let text = bounded_file::read(file).map_err(|error| format!("CA file {shown}: {error}"))?;
    let certificates = certificates(&text);
    if certificates.is_empty() {
        return Err(format!("CA file {shown} has no certificate; expected PEM"));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// The certificates in a PEM text.
pub fn certificates(text: &[u8]) -> Vec<Certificate<'static>> {
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    parse_pem(text).filter_map(certificate).collect()
}

/// Reason of a failure, without the URL.
pub fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "timeout".to_owned(),
        ureq::Error::HostNotFound => "host not found".to_owned(),
        ureq::Error::ConnectionFailed => "connection failed".to_owned(),
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Rustls(error) => error.to_string(),
        _ => "request failed".to_owned(),
    }
}
