//! Whether the process is fit to answer, and the gRPC service that says so.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::{Request, Response, Status, async_trait};
use tonic_health::{
    ServingStatus,
    pb::{
        HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus as WireStatus,
        health_server::Health,
    },
};

use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;

/// Where a process stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There are no rules yet, or the store was never reached.
    Starting,
    /// There are rules to enforce, and there was a store to count in.
    Ready,
    /// It was told to stop, which is final.
    Stopping,
}

/// The phase, for all who ask; a clone is a handle on the same one.
#[derive(Clone, Debug)]
pub struct Readiness {
    phase: Arc<watch::Sender<Phase>>,
    missing: Arc<Mutex<Missing>>,
}

/// What is needed to become ready and did not come yet. What came once is not asked for again: an outage of the
/// store is met by each answer, and must not take every instance out at once.
#[derive(Debug)]
struct Missing {
    rules: bool,
    /// Each worker has connections of its own, and so has the HTTP port.
    stores: usize,
}

impl Readiness {
    /// Ready once there are rules.
    pub(crate) fn new() -> Self {
        Self::waiting_for(Missing { rules: true, stores: 0 })
    }

    /// Ready once there are rules and each of so many stores was reached.
    pub(super) fn with_stores(stores: usize) -> Self {
        Self::waiting_for(Missing { rules: true, stores })
    }

    fn waiting_for(missing: Missing) -> Self {
        let phase = Arc::new(watch::Sender::new(Phase::Starting));
        Self { phase, missing: Arc::new(Mutex::new(missing)) }
    }

    /// Notes that there are rules to enforce.
    pub(super) fn rules_loaded(&self) {
        self.came(|missing| missing.rules = false);
    }

    /// Notes that one of the stores was reached for the first time.
    pub(super) fn store_reached(&self) {
        self.came(|missing| missing.stores = missing.stores.saturating_sub(1));
    }

    fn came(&self, note: impl Fn(&mut Missing)) {
        let mut missing = self.missing.lock();
        note(&mut missing);
        if !missing.rules && missing.stores == 0 {
            self.advance(|phase| phase == Phase::Starting, Phase::Ready);
        }
    }

    /// Notes that the process was told to stop.
    pub(super) fn stop(&self) {
        self.advance(|_| true, Phase::Stopping);
    }

    fn advance(&self, applies: impl Fn(Phase) -> bool, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let changes = applies(*phase) && *phase != next;
            if changes {
                *phase = next;
            }
            changes
        });
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }
}

/// `grpc.health.v1.Health`, the same for every name that it knows.
///
/// Not tonic-health's own, whose watches stay open for ever: here they end when the process stops, so that
/// they do not hold up its end.
#[derive(Debug)]
pub(super) struct HealthService {
    readiness: Readiness,
}

/// The whole process, the service, and the name that the reference's health goes by.
const NAMES: [&str; 3] = ["", SERVICE_NAME, "ratelimit"];

impl HealthService {
    pub(super) const fn new(readiness: Readiness) -> Self {
        Self { readiness }
    }
}

fn known(request: &Request<HealthCheckRequest>) -> Result<(), Status> {
    match NAMES.contains(&request.get_ref().service.as_str()) {
        true => Ok(()),
        false => Err(Status::not_found("no such service")),
    }
}

fn status(phase: Phase) -> HealthCheckResponse {
    let status = match phase {
        Phase::Ready => ServingStatus::Serving,
        Phase::Starting | Phase::Stopping => ServingStatus::NotServing,
    };
    HealthCheckResponse { status: WireStatus::from(status).into() }
}

#[async_trait]
impl Health for HealthService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        known(&request)?;
        Ok(Response::new(status(self.readiness.phase())))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        known(&request)?;
        let mut phases = self.readiness.phase.subscribe();
        // The first answer is the phase as it is.
        phases.mark_changed();
        let answers = stream::unfold(Some(phases), |phases| async {
            let mut phases = phases?;
            phases.changed().await.ok()?;
            let phase = *phases.borrow_and_update();
            Some((Ok(status(phase)), (phase != Phase::Stopping).then_some(phases)))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    fn request(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: service.to_owned() })
    }

    #[tokio::test]
    async fn every_name_serves_only_while_there_are_rules_and_no_stop() {
        let readiness = Readiness::new();
        let health = HealthService::new(readiness.clone());
        let everyone_sees = async |expected| {
            for name in NAMES {
                let answer = health.check(request(name)).await.expect("known");
                assert_eq!(answer.get_ref().status(), expected);
            }
        };
        everyone_sees(WireStatus::NotServing).await;
        readiness.rules_loaded();
        everyone_sees(WireStatus::Serving).await;
        readiness.stop();
        everyone_sees(WireStatus::NotServing).await;
        readiness.rules_loaded();
        everyone_sees(WireStatus::NotServing).await;
        let unknown = health.check(request("other")).await.expect_err("unknown");
        assert_eq!(unknown.code(), tonic::Code::NotFound);
    }

    #[tokio::test]
    async fn a_watch_tells_every_change_and_ends_with_the_process() {
        let readiness = Readiness::new();
        let health = HealthService::new(readiness.clone());
        let mut watch = health.watch(request("")).await.expect("known").into_inner();
        let mut next = async || watch.next().await.map(|answer| answer.expect("an answer").status());
        assert_eq!(next().await, Some(WireStatus::NotServing));
        readiness.rules_loaded();
        assert_eq!(next().await, Some(WireStatus::Serving));
        readiness.stop();
        assert_eq!(next().await, Some(WireStatus::NotServing));
        assert_eq!(next().await, None);
    }
}
