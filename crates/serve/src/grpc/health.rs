//! `grpc.health.v1.Health`, backed by the process's readiness.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use tokio::sync::Semaphore;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;
use tonic::{Request, Response, Status, async_trait};
use tonic_health::ServingStatus;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus as WireStatus,
    health_server::Health,
};

use crate::readiness::{Phase, Readiness};

/// `grpc.health.v1.Health`, with the same status for every service name.
///
/// Not tonic-health's implementation, whose watches stay open forever: here they end at shutdown, so that they do not
/// delay it.
#[derive(Debug)]
pub(super) struct HealthService {
    readiness: Readiness,
    /// Room for further watches.
    watches: Arc<Semaphore>,
}

/// Open watches of all connections.
const MAX_WATCHES: usize = 10_000;

/// The whole process, the rate-limit service, and the service name of envoyproxy/ratelimit.
const SERVICE_NAMES: [&str; 3] = ["", SERVICE_NAME, "ratelimit"];

impl HealthService {
    pub(super) fn new(readiness: Readiness) -> Self {
        Self { readiness, watches: Arc::new(Semaphore::new(MAX_WATCHES)) }
    }
}

fn check_service(request: &Request<HealthCheckRequest>) -> Result<(), Status> {
    if SERVICE_NAMES.contains(&request.get_ref().service.as_str()) {
        return Ok(());
    }
    Err(Status::not_found("unknown service"))
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
        check_service(&request)?;
        Ok(Response::new(status(self.readiness.phase())))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        check_service(&request)?;
        let watch = Arc::clone(&self.watches).try_acquire_owned();
        let watch =
            watch.map_err(|_| Status::resource_exhausted("too many Watch calls; expected Check calls"))?;
        let mut phases = self.readiness.subscribe();
        // Sends the current status first.
        phases.mark_changed();
        let responses = stream::unfold(Some((phases, watch)), |watched| async {
            let (mut phases, watch) = watched?;
            phases.changed().await.ok()?;
            let phase = *phases.borrow_and_update();
            Some((Ok(status(phase)), (phase != Phase::Stopping).then_some((phases, watch))))
        });
        Ok(Response::new(Box::pin(responses)))
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
    async fn every_service_name_serves_from_the_first_rules_until_shutdown() {
        let readiness = Readiness::new(0);
        let health = HealthService::new(readiness.clone());
        let expect_status = async |expected| {
            for name in SERVICE_NAMES {
                let response = health.check(request(name)).await.expect("known");
                assert_eq!(response.get_ref().status(), expected);
            }
        };
        expect_status(WireStatus::NotServing).await;
        readiness.rules_loaded();
        expect_status(WireStatus::Serving).await;
        readiness.stop();
        expect_status(WireStatus::NotServing).await;
        readiness.rules_loaded();
        expect_status(WireStatus::NotServing).await;
        let unknown = health.check(request("other")).await.expect_err("unknown");
        assert_eq!(unknown.code(), tonic::Code::NotFound);
    }

    #[tokio::test]
    async fn a_watch_reports_every_change_and_ends_at_shutdown() {
        let readiness = Readiness::new(0);
        let health = HealthService::new(readiness.clone());
        let mut watch = health.watch(request("")).await.expect("known").into_inner();
        let mut next = async || watch.next().await.map(|response| response.expect("a response").status());
        assert_eq!(next().await, Some(WireStatus::NotServing));
        readiness.rules_loaded();
        assert_eq!(next().await, Some(WireStatus::Serving));
        readiness.stop();
        assert_eq!(next().await, Some(WireStatus::NotServing));
        assert_eq!(next().await, None);
    }
}
