//! The baseline for tollgate: tonic with a constant response, on as many threads as tollgate has workers.
//!
//! `echo ADDRESS:PORT [THREADS]`: a single-threaded runtime on each thread, with a listener of its own on the same port.
//! Built as tollgate is, so that the difference in `benches/compare.sh` is the service itself.

use std::{env, error::Error, io, net::SocketAddr, thread};

use tokio::{net::TcpSocket, runtime};
use tollgate::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, RateLimit},
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use tonic::transport::{Server, server::TcpIncoming};
use tonic::{Request, Response, Status};

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

/// Serves on a thread of its own, until the process ends.
fn serve(address: SocketAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // The kernel distributes connections over the listeners of a port.
        socket.set_reuseport(true)?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let incoming = TcpIncoming::from(socket.listen(1024)?).with_nodelay(Some(true));
        Server::builder()
            .add_service(RateLimitServiceServer::new(Echo))
            .serve_with_incoming(incoming)
            .await?;
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let address = env::args().nth(1).ok_or("expected the address to listen on")?.parse()?;
    let threads = env::args().nth(2).map_or(Ok(1), |count| count.parse::<usize>())?;
    let threads: Vec<_> = (0..threads)
        .map(|_| thread::Builder::new().spawn(move || serve(address)))
        .collect::<Result<_, io::Error>>()?;
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
}
