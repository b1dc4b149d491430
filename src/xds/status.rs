//! State of the connection to the control plane, for the log, the metrics and the admin API. An outage is logged once for
//! each reason, not once for each attempt.

use tollgate_control::{ControlPlane, Link, RulesStatus, bounds::truncated};
use tollgate_core::clock::Clock;

use super::metrics;

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
        metrics::connected(false);
        let since_ms = now_ms();
        status.update(|state| {
            state.control_plane = Some(ControlPlane { since_ms, ..ControlPlane::default() });
        });
        Self { server, status, is_connected: false, logged: None }
    }

    /// Records a failed attempt to connect, or a lost stream.
    pub(super) fn disconnected(&mut self, reason: String) {
        let reason = truncated(reason);
        metrics::connected(false);
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
            metrics::connected(true);
            tracing::info!(server = %self.server, "control plane connected");
            self.set_link(Link::Connected, None);
            (self.is_connected, self.logged) = (true, None);
        }
    }

    /// Records a response.
    pub(super) fn received(&mut self) {
        self.connected();
        let now_ms = now_ms();
        metrics::response(now_ms);
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

fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}
