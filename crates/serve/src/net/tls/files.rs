//! TLS configuration from certificate and key files, with the names that clients must have.

use std::{io, ops::RangeInclusive, path::Path, sync::Arc};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme, client::danger::HandshakeSignatureValid, crypto::ring,
};
use sha2::{Digest as _, Sha256};
use tollgate_runtime::{bounded_file, redact};
use webpki::EndEntityCert;
use x509_cert::{Certificate, der::Decode as _, time::Time};

use crate::net::{ClientSettings, Port, TlsFile, TlsSettings};

/// Error of a TLS file. Never contains file contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flag}: {path}: {reason}")]
pub struct TlsError {
    flag: String,
    path: String,
    reason: String,
}

/// Contents of the TLS files of a port, read together.
pub(super) struct TlsFiles {
    certificate: io::Result<Vec<u8>>,
    key: io::Result<Vec<u8>>,
    authorities: Option<io::Result<Vec<u8>>>,
}

/// Digest that distinguishes file contents without retaining them.
pub(super) type Fingerprint = [u8; 32];

impl TlsFiles {
    pub(super) fn read(settings: &TlsSettings) -> Self {
        Self {
            certificate: bounded_file::read(&settings.certificate),
            key: bounded_file::read(&settings.key),
            authorities: settings.clients.as_ref().map(|clients| bounded_file::read(&clients.authorities)),
        }
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        let mut digest = Sha256::new();
        for file in
            [Some(&self.certificate), Some(&self.key), self.authorities.as_ref()].into_iter().flatten()
        {
            // Digests have equal length, so that the boundaries between files are unambiguous.
            digest.update(match file {
                Ok(bytes) => Sha256::digest(bytes),
                Err(error) => Sha256::digest(error.to_string()),
            });
        }
        digest.finalize().into()
    }

    /// Earliest expiry of the certificates, in seconds since the Unix epoch, if readable.
    pub(super) fn expiry(&self) -> Option<i64> {
        self.certificate.as_ref().ok().and_then(|bytes| first_expiry(bytes))
    }

    /// Checks that the port's own certificate, the first one, is valid at a time, in seconds since the Unix epoch. An
    /// expired one after it may be one that clients do not need.
    pub(super) fn check_validity(&self, settings: &TlsSettings, now: i64) -> Result<(), TlsError> {
        let chain = certificates(&self.certificate).unwrap_or_default();
        let reason = match chain.first().and_then(validity) {
            Some(validity) if now < *validity.start() => "not valid yet; expected a valid certificate",
            Some(validity) if now > *validity.end() => "expired; expected a valid certificate",
            Some(_) | None => return Ok(()),
        };
        let (flag, path) = (settings.flag(TlsFile::Certificate), redact::path(&settings.certificate));
        Err(TlsError { flag, path, reason: reason.to_owned() })
    }

    pub(super) fn config(&self, settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
        let fails = |file, path: &Path| {
            let (flag, path) = (settings.flag(file), redact::path(path));
            move |reason: String| TlsError { flag, path, reason }
        };
        let chain =
            certificates(&self.certificate).map_err(fails(TlsFile::Certificate, &settings.certificate))?;
        let key = key(&self.key).map_err(fails(TlsFile::Key, &settings.key))?;
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder =
            builder.map_err(|error| fails(TlsFile::Certificate, &settings.certificate)(error.to_string()))?;
        let builder = match (&settings.clients, &self.authorities) {
            (Some(clients), Some(authorities)) => {
                let verifier = verifier(clients, authorities, provider);
                let verifier = verifier.map_err(fails(TlsFile::Authorities, &clients.authorities))?;
                builder.with_client_cert_verifier(verifier)
            }
            (None, _) | (_, None) => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| {
            fails(TlsFile::Certificate, &settings.certificate)(format!("unusable with its key: {error}"))
        })?;
        config.alpn_protocols = vec![protocol(settings.port).to_vec()];
        // Connections live long, so there is little to resume; and without resumption every one presents its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// Application protocol of a port, negotiated by ALPN.
const fn protocol(port: Port) -> &'static [u8] {
    match port {
        Port::Grpc | Port::Region => b"h2",
        Port::Http | Port::Admin | Port::Metrics => b"http/1.1",
    }
}

/// Earliest expiry of the certificates of a PEM file, in seconds since the Unix epoch, if readable.
pub(super) fn first_expiry(pem: &[u8]) -> Option<i64> {
    let chain = pem_certificates(pem).ok()?;
    chain.iter().filter_map(validity).map(|validity| *validity.end()).min()
}

fn certificates(file: &io::Result<Vec<u8>>) -> Result<Vec<CertificateDer<'static>>, String> {
    pem_certificates(file.as_ref().map_err(ToString::to_string)?)
}

fn pem_certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        // The parser's message may quote the file, which may be the key if an operator swapped the two.
        Ok(_) | Err(_) => Err("expected certificates in PEM form".to_owned()),
    }
}

/// Times in which a certificate is valid, if readable.
fn validity(certificate: &CertificateDer<'_>) -> Option<RangeInclusive<i64>> {
    let validity = Certificate::from_der(certificate).ok()?.tbs_certificate.validity;
    let seconds = |time: Time| i64::try_from(time.to_unix_duration().as_secs()).ok();
    Some(seconds(validity.not_before)?..=seconds(validity.not_after)?)
}

fn key(file: &io::Result<Vec<u8>>) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = file.as_ref().map_err(ToString::to_string)?;
    PrivateKeyDer::from_pem_slice(bytes)
        .map_err(|_| "expected a private key in PEM form, not encrypted".to_owned())
}

fn verifier(
    clients: &ClientSettings,
    authorities: &io::Result<Vec<u8>>,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    let signed = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let signed = signed.map_err(|error| error.to_string())?;
    match clients.names.as_slice() {
        [] => Ok(signed),
        names => Ok(Arc::new(NamedClients { signed, names: names.to_vec() })),
    }
}

/// Requires one of `names` in the client certificate, in addition to the checks of `signed`.
#[derive(Debug)]
pub(super) struct NamedClients {
    pub(super) signed: Arc<dyn ClientCertVerifier>,
    pub(super) names: Vec<String>,
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        true
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        let certificate = EndEntityCert::try_from(end_entity);
        let certificate = certificate.map_err(|_| Error::from(CertificateError::BadEncoding))?;
        // Literally: a wildcard in a certificate matches only itself.
        let mut presented = certificate.valid_dns_names().chain(certificate.valid_uri_names());
        if !presented.any(|name| self.names.iter().any(|allowed| allowed == name)) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
