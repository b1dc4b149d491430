//! What is known of a control plane from one stream to the next, and what it is asked for.

use prost_types::{Struct, Value, value::Kind};

use super::resource::TYPE_URL;
use crate::{
    config::Fingerprint,
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        google::rpc::Status,
    },
    settings::XdsSettings,
};

/// gRPC's code for what can't be used as it is.
const INVALID_ARGUMENT: i32 = 3;
/// Bytes of a report that a control plane is told.
const MOST_TOLD: usize = 16 << 10;

/// What was good, and what was not.
#[derive(Debug)]
pub(super) struct Session {
    node: Node,
    /// The last version that was good, in the control plane's words.
    version: String,
    /// The content of that version.
    pub(super) accepted: Option<Fingerprint>,
    /// The content of what was refused last, and why, until something is good again.
    pub(super) refused: Option<(Fingerprint, String)>,
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
        Self { node, version: String::new(), accepted: None, refused: None }
    }

    /// What opens a stream. It states no version, so that everything is sent: a control plane that counts its versions
    /// from 1 in each process, as Envoy Gateway does, would come to take other rules for those that are here already.
    pub(super) fn opening(&self) -> DiscoveryRequest {
        let request = self.request(String::new());
        DiscoveryRequest { node: Some(self.node.clone()), version_info: String::new(), ..request }
    }

    /// Says that the version is in force.
    pub(super) fn ack(&mut self, version: String, nonce: String) -> DiscoveryRequest {
        self.version = version;
        self.request(nonce)
    }

    /// Says that what had the nonce is not, and why.
    pub(super) fn nack(&self, nonce: String, reason: &str) -> DiscoveryRequest {
        let end = (0..=MOST_TOLD.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
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
    fn a_stream_opens_without_a_version_and_says_who_asks() {
        let mut session = session();
        assert_eq!(session.opening().version_info, "");
        let ack = session.ack("7".to_owned(), "n".to_owned());
        assert_eq!((&*ack.version_info, &*ack.response_nonce, &ack.node), ("7", "n", &None));
        let nack = session.nack("m".to_owned(), "bad");
        assert_eq!((&*nack.version_info, &*nack.response_nonce), ("7", "m"));
        let opening = session.opening();
        assert_eq!((&*opening.version_info, &*opening.response_nonce), ("", ""));
        assert!(opening.error_detail.is_none());
        assert_eq!(opening.node.expect("told").id, "edge");
    }

    #[test]
    fn of_a_long_report_the_beginning_is_told() {
        let nack = session().nack(String::new(), &"é".repeat(MOST_TOLD));
        let told = nack.error_detail.expect("refused").message;
        assert_eq!(told, "é".repeat(MOST_TOLD / 2));
    }
}
