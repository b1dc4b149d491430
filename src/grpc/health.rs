//! `grpc.health.v1.Health`, backed by the process's readiness.

use std::pin::Pin;

use futures_util::{Stream, stream};
use tonic::{Request, Response, Status, async_trait};
use tonic_health::{
    ServingStatus,
    pb::{
        HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus as WireStatus,
        health_server::Health,
    },
};

use crate::{
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME,
    readiness::{Phase, Readiness},
};

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
        let mut phases = self.readiness.subscribe();
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
