//! Certificates, and clients that show them.

use std::net::SocketAddr;

use h2::client::SendRequest;
use hyper::body::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::prelude::*;

/// Someone who signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM form.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("valid");
        // Otherwise all have the same name, and each seems to have signed itself.
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for DNS names, addresses and URIs.
    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        let (uris, names): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).expect("valid");
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("ASCII")));
        params.subject_alt_names.extend(uris);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signed").pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// Speaks `protocol` to servers with certificates of this authority, and shows one if there is one.
    pub(crate) fn client(&self, shown: Option<&Pair>, protocol: &str) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("known");
        let config = config.with_root_certificates(roots);
        let mut config = match shown {
            None => config.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
                config.with_client_auth_cert(vec![chain], key).expect("a pair")
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

impl Pair {
    /// Writes it to files, as `cert.pem` and `key.pem`.
    pub(crate) fn write(&self, directory: &Path) {
        fs::write(directory.join("cert.pem"), &self.certificate).expect("written");
        fs::write(directory.join("key.pem"), &self.key).expect("written");
    }

    /// The certificate as it is on the wire.
    pub(crate) fn der(&self) -> Vec<u8> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("PEM").to_vec()
    }
}

/// A connection of HTTP/2 inside TLS.
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
    /// The certificate that the server presented.
    pub(crate) certificate: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(client: &TlsConnector, port: u16) -> Result<Self, String> {
        let failed = |error: &dyn ToString| error.to_string();
        let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await.expect("it listens");
        let name = "localhost".try_into().expect("a name");
        let stream = client.connect(name, stream).await.map_err(|error| failed(&error))?;
        let (_, session) = stream.get_ref();
        assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
        let certificate = session.peer_certificates().expect("shown")[0].to_vec();
        let (requests, connection) = h2::client::handshake(stream).await.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        let mut opened = Self { requests, certificate };
        // Inside TLS 1.3, a client learns only afterwards that its certificate was refused.
        opened.check_health().await?;
        Ok(opened)
    }

    /// Requests the health of the service.
    pub(crate) async fn check_health(&mut self) -> Result<(), String> {
        let request = ::http::Request::post("https://localhost/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let mut requests = self.requests.clone().ready().await.map_err(|error| error.to_string())?;
        let (answer, mut body) = requests.send_request(request, false).map_err(|error| error.to_string())?;
        body.send_data(Bytes::from_static(b"\0\0\0\0\0"), true).map_err(|error| error.to_string())?;
        let mut answer = answer.await.map_err(|error| error.to_string())?.into_body();
        let message = answer.data().await.ok_or("no message")?.map_err(|error| error.to_string())?;
        // Field 1, status SERVING.
        assert_eq!(message, &b"\0\0\0\0\x02\x08\x01"[..]);
        Ok(())
    }
}
