//! Client authorization by the names in certificates.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use webpki::EndEntityCert;

/// Requires one of `names` in the client certificate, in addition to the checks of `signed`.
#[derive(Debug)]
pub(super) struct NamedClients {
    pub(super) signed: Arc<dyn ClientCertVerifier>,
    pub(super) names: Vec<String>,
}

impl NamedClients {
    /// Compares names literally: a wildcard in a certificate matches only itself.
    fn allows(&self, certificate: &EndEntityCert<'_>) -> bool {
        let mut presented = certificate.valid_dns_names().chain(certificate.valid_uri_names());
        presented.any(|name| self.names.iter().any(|allowed| allowed == name))
    }
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
        match self.allows(&certificate) {
            true => Ok(verified),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
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
