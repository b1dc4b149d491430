//! State of one control plane that outlives a stream: accepted and rejected versions, and the state of the connection, of which
//! an outage is logged once for each reason.

use std::time::Duration;

use http::Uri;
use prost_types::{Struct, Value, value::Kind};
use tokio::sync::watch;
use tollgate_control::{ControlPlane, Link, RulesStatus, bounds::truncated};
use tollgate_core::clock::now_ms;
use tollgate_proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest};
use tollgate_proto::google::rpc::Status;
use tollgate_rules::config::Fingerprint;
use tollgate_runtime::redact::beginning;

use super::{RulesSink, metrics, resource::TYPE_URL};
use crate::XdsSettings;

/// The client of one control plane.
pub(super) struct Client {
    pub(super) server: Uri,
    pub(super) settings: XdsSettings,
    pub(super) rules: RulesSink,
    pub(super) session: Session,
    pub(super) status: ConnectionStatus,
    pub(super) accepted: watch::Sender<bool>,
}

impl Client {
    pub(super) fn new(
        server: Uri,
        settings: XdsSettings,
        rules: RulesSink,
        accepted: watch::Sender<bool>,
    ) -> Self {
        let session = Session::new(&settings);
        let name = server.to_string().trim_end_matches('/').to_owned();
        let status = ConnectionStatus::new(name, rules.status.clone());
        Self { server, settings, rules, session, status, accepted }
    }
}

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
        let metadata = settings.node_metadata.iter().flatten();
        let fields = metadata.map(|(key, value)| (key.clone(), text(value))).collect();
        let node = Node {
            id: settings.node_id.clone(),
            metadata: Some(Struct { fields }),
            user_agent_name: "tollgate".to_owned(),
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
        let message = beginning(reason, MAX_DETAIL_BYTES).to_owned();
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

/// State of the connection.
#[derive(Debug)]
pub(super) struct ConnectionStatus {
    server: String,
    status: RulesStatus,
    is_connected: bool,
    /// Reason logged last, so that another reason is logged as well.
    logged: Option<String>,
}

impl ConnectionStatus {
    /// Not connected yet.
    pub(super) fn new(server: String, status: RulesStatus) -> Self {
        metrics::CONNECTED.set(0.0);
        let since_ms = now_ms();
        status.update(|state| {
            state.control_plane = Some(ControlPlane { since_ms, ..ControlPlane::default() });
        });
        Self { server, status, is_connected: false, logged: None }
    }

    /// Records a failed attempt to connect, or a lost stream.
    pub(super) fn disconnected(&mut self, reason: String) {
        let reason = truncated(reason);
        metrics::CONNECTED.set(0.0);
        if self.logged.as_ref() == Some(&reason) {
            tracing::debug!(server = %self.server, %reason, "control plane still unreachable");
        } else {
            tracing::error!(
                server = %self.server,
                %reason,
                "control plane unreachable; keeping the active rules"
            );
        }
        self.set_link(Link::Connecting, Some(&reason));
        self.logged = Some(reason);
        self.is_connected = false;
    }

    /// Records that the control plane is connected.
    pub(super) fn connected(&mut self) {
        if !self.is_connected {
            metrics::CONNECTED.set(1.0);
            tracing::info!(server = %self.server, "control plane connected");
            self.set_link(Link::Connected, None);
            (self.is_connected, self.logged) = (true, None);
        }
    }

    /// Records a response.
    pub(super) fn received(&mut self) {
        self.connected();
        let now_ms = now_ms();
        metrics::LAST_RESPONSE.set(Duration::from_millis(now_ms).as_secs_f64());
        self.update(|plane| plane.heard_ms = Some(now_ms));
    }

    /// Records an accepted version.
    pub(super) fn accepted(&self, version: &str) {
        let version = truncated(version.to_owned());
        self.update(|plane| plane.version = Some(version.clone()));
    }

    fn set_link(&self, link: Link, problem: Option<&str>) {
        let now_ms = now_ms();
        self.update(|plane| {
            if plane.link != link {
                (plane.link, plane.since_ms) = (link, now_ms);
            }
            plane.problem = problem.map(ToOwned::to_owned);
        });
    }

    fn update(&self, change: impl Fn(&mut ControlPlane)) {
        self.status.update(|state| change(state.control_plane.get_or_insert_default()));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_fixtures::settings;

    use super::*;

    fn session() -> Session {
        Session::new(&settings("--xds-node-id edge --xds-node-metadata zone=a"))
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
