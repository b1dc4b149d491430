//! Times in which a control plane can't be reached: each is told once, however often it was tried.

use super::metrics;
use crate::{
    clock::Clock,
    control::{ControlPlane, Link, RulesStatus, bounds::shortened},
};

/// Whether the control plane is there.
#[derive(Debug)]
pub(super) struct Outage {
    server: String,
    status: RulesStatus,
    is_over: bool,
    /// Of what the log told last, so that another reason is told too.
    told: Option<String>,
}

impl Outage {
    /// Nothing is known yet.
    pub(super) fn new(server: String, status: RulesStatus) -> Self {
        metrics::connected(false);
        let since_ms = now_ms();
        status.update(|state| {
            state.control_plane = Some(ControlPlane { since_ms, ..ControlPlane::default() });
        });
        Self { server, status, is_over: false, told: None }
    }

    /// It can't be reached, or was lost.
    pub(super) fn goes_on(&mut self, reason: String) {
        let reason = shortened(reason);
        metrics::connected(false);
        if self.told.as_ref() == Some(&reason) {
            tracing::debug!("the control plane {} is still away: {reason}", self.server);
        } else {
            tracing::error!(
                "the control plane {} is away, and is tried again and again; what is in force stays: {reason}",
                self.server
            );
        }
        self.tell(Link::Connecting, Some(&reason));
        self.told = Some(reason);
        self.is_over = false;
    }

    /// It is there.
    pub(super) fn ends(&mut self) {
        if !self.is_over {
            metrics::connected(true);
            tracing::info!("the control plane {} is there", self.server);
            self.tell(Link::Connected, None);
            (self.is_over, self.told) = (true, None);
        }
    }

    /// It sent something.
    pub(super) fn heard(&mut self) {
        self.ends();
        let now_ms = now_ms();
        metrics::response(now_ms);
        self.update(|plane| plane.heard_ms = Some(now_ms));
    }

    /// A version of it is good.
    pub(super) fn accepted(&self, version: &str) {
        let version = shortened(version.to_owned());
        self.update(|plane| plane.version = Some(version.clone()));
    }

    fn tell(&self, link: Link, problem: Option<&str>) {
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
