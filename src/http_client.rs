//! HTTP client of the admin commands and of the webhook. Blocks.

use std::{sync::Arc, time::Duration};

use rustls::crypto::ring;
use ureq::{
    Agent,
    tls::{ClientCert, RootCerts, TlsConfig},
};

/// A client that trusts `roots`, presents `identity`, and fails a request after `timeout`. Responses of every status are
/// returned. Credentials are for the stated server only: neither a proxy nor a redirect is followed.
pub(crate) fn agent(roots: RootCerts, identity: Option<ClientCert>, timeout: Duration) -> Agent {
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
