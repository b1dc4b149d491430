//! The baseline for tollgate: tonic on one thread with a constant response.
//!
//! Built as tollgate is, so that the difference in `benches/compare.sh` is the service itself.

use std::{env, error::Error};

use tollgate::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, RateLimit},
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use tonic::{Request, Response, Status, transport::Server};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Echo;

#[tonic::async_trait]
impl RateLimitService for Echo {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let status = || DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit { requests_per_unit: 100, unit: 2, ..RateLimit::default() }),
            limit_remaining: 99,
            ..DescriptorStatus::default()
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: request.get_ref().descriptors.iter().map(|_| status()).collect(),
            ..RateLimitResponse::default()
        }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).ok_or("expected the address to listen on")?.parse()?;
    Server::builder().tcp_nodelay(true).add_service(RateLimitServiceServer::new(Echo)).serve(address).await?;
    Ok(())
}
