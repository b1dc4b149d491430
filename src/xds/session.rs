//! State that outlives a stream, and the requests made from it.

use prost_types::{Struct, Value, value::Kind};
use tollgate_rules::config::Fingerprint;

use super::resource::TYPE_URL;
use crate::{
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        google::rpc::Status,
    },
    settings::XdsSettings,
};

/// gRPC status code `INVALID_ARGUMENT`.
const INVALID_ARGUMENT: i32 = 3;
/// Maximum length of the error detail of a NACK, in bytes.
const MAX_DETAIL_BYTES: usize = 16 << 10;

/// Accepted and rejected versions.
#[derive(Debug)]
pub(super) struct Session {
    node: Node,
    /// `version_info` of the last accepted response.
    version: String,
    /// Content of that response.
    pub(super) accepted: Option<Fingerprint>,
    /// Content of the last rejected response and the reason, until a response is accepted.
    pub(super) rejected: Option<(Fingerprint, String)>,
}

impl Session {
    pub(super) fn new(settings: &XdsSettings) -> Self {
        let text = |text: &String| Value { kind: Some(Kind::StringValue(text.clone())) };
        let fields = settings.node_metadata.iter().map(|(key, value)| (key.clone(), text(value))).collect();
        let node = Node {
            id: settings.node_id.clone(),
            metadata: Some(Struct { fields }),
            user_agent_name: env!("CARGO_PKG_NAME").to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Node::default()
        };
        Self { node, version: String::new(), accepted: None, rejected: None }
    }

    /// The first request of a stream. States no version, so that the control plane sends everything: one that counts versions
    /// from 1 in each process, as Envoy Gateway does, would otherwise mistake different rules for the accepted ones.
    pub(super) fn opening(&self) -> DiscoveryRequest {
        let request = self.request(String::new());
        DiscoveryRequest { node: Some(self.node.clone()), version_info: String::new(), ..request }
    }

    /// Accepts a version.
    pub(super) fn ack(&mut self, version: String, nonce: String) -> DiscoveryRequest {
        self.version = version;
        self.request(nonce)
    }

    /// Rejects the response with this nonce for `reason`.
    pub(super) fn nack(&self, nonce: String, reason: &str) -> DiscoveryRequest {
        let end = (0..=MAX_DETAIL_BYTES.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
        let message = reason.get(..end.unwrap_or_default()).unwrap_or_default().to_owned();
        let error_detail = Some(Status { code: INVALID_ARGUMENT, message });
        DiscoveryRequest { error_detail, ..self.request(nonce) }
    }

    fn request(&self, response_nonce: String) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: None,
            resource_names: Vec::new(),
            type_url: TYPE_URL.to_owned(),
            response_nonce,
            error_detail: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::BackoffSettings;

    fn session() -> Session {
        Session::new(&XdsSettings {
            server: "http://plane:1".parse().expect("a URL"),
            node_id: "edge".to_owned(),
            node_metadata: vec![("zone".to_owned(), "a".to_owned())],
            headers: Vec::new(),
            tls: None,
            backoff: BackoffSettings { initial: Default::default(), max: Default::default(), jitter: 0.0 },
            keepalive: Default::default(),
            max_message_bytes: 1,
            initial_fetch_timeout: Default::default(),
        })
    }

    #[test]
    fn the_first_request_has_the_node_and_no_version() {
        let mut session = session();
        assert_eq!(session.opening().version_info, "");
        let ack = session.ack("7".to_owned(), "n".to_owned());
        assert_eq!((&*ack.version_info, &*ack.response_nonce, &ack.node), ("7", "n", &None));
        let nack = session.nack("m".to_owned(), "bad");
        assert_eq!((&*nack.version_info, &*nack.response_nonce), ("7", "m"));
        let opening = session.opening();
        assert_eq!((&*opening.version_info, &*opening.response_nonce), ("", ""));
        assert!(opening.error_detail.is_none());
        assert_eq!(opening.node.expect("stated").id, "edge");
    }

    #[test]
    fn a_long_error_detail_is_truncated() {
        let nack = session().nack(String::new(), &"é".repeat(MAX_DETAIL_BYTES));
        let detail = nack.error_detail.expect("rejected").message;
        assert_eq!(detail, "é".repeat(MAX_DETAIL_BYTES / 2));
    }
}
