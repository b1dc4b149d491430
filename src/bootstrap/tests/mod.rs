mod connections;
mod lifecycle;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};
use std::{fs::File, path::Path, sync::Arc, thread};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tollgate_fixtures::{HTTP2_START, temporary_file};
use tollgate_gate::SHOULD_RATE_LIMIT_PATH;
use tollgate_proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient,
    rate_limit_service_server::RateLimitService,
};
use tollgate_serve::grpc::GrpcListen;
use tollgate_serve::{net::Port, readiness::Phase};
use tollgate_store::StoreError;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, async_trait};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::running::Running;
use super::start::start_with;
use super::workers::OpenService;
use super::*;
use crate::settings::Settings;

const GOOD: &str = "domain: web\ndescriptors: []\n";
const BAD: &str = "domain: [";

/// Service that answers each call once it gets a semaphore permit, and reports the name of its thread.
#[derive(Clone)]
struct Stub {
    permits: Arc<Semaphore>,
    begun: mpsc::UnboundedSender<String>,
}

impl Stub {
    /// A stub without permits.
    fn new() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (begun, received) = mpsc::unbounded_channel();
        (Self { permits: Arc::new(Semaphore::new(0)), begun }, received)
    }

    /// Opens this stub on each thread.
    fn opener(self) -> OpenService<Self> {
        Arc::new(move |_, _| Ok(self.clone()))
    }
}

#[async_trait]
impl RateLimitService for Stub {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.begun.send(thread::current().name().unwrap_or_default().to_owned()).expect("received");
        self.permits.acquire().await.expect("open").forget();
        Ok(Response::new(RateLimitResponse::default()))
    }
}

/// Server of [`Stub`]s, with handles to control them.
struct TestServer {
    running: Running,
    permits: Arc<Semaphore>,
    begun: mpsc::UnboundedReceiver<String>,
    directory: tempfile::TempDir,
}

fn write(directory: &Path, rules: &str) {
    let path = directory.join("rules.yaml");
    std::fs::write(&path, rules).expect("written");
    // At startup, a file that was changed just now would be waited for.
    let file = File::options().append(true).open(path).expect("there");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("a time can be set");
}

fn settings(directory: &Path, flags: &str) -> Settings {
    tollgate_fixtures::settings(&format!(
        "--grpc-address=127.0.0.1:0 --http-address=127.0.0.1:0 --admin-address=127.0.0.1:0 --workers=2 --config={} {flags}",
        directory.display()
    ))
}

/// A directory with rules, and the settings of a server with them.
fn prepared(rules: &str, flags: &str) -> (tempfile::TempDir, Settings) {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), rules);
    let settings = settings(directory.path(), flags);
    (directory, settings)
}

async fn stage(rules: &str, flags: &str, permits: usize) -> TestServer {
    stage_with(rules, flags, permits, |_| {}).await
}

/// A server whose settings are changed before it starts.
async fn stage_with(
    rules: &str,
    flags: &str,
    permits: usize,
    change: impl FnOnce(&mut Settings),
) -> TestServer {
    let (directory, mut settings) = prepared(rules, flags);
    let (stub, begun) = Stub::new();
    stub.permits.add_permits(permits);
    let permits = Arc::clone(&stub.permits);
    change(&mut settings);
    let running = start_with(settings, None, |_| stub.opener()).await.expect("started");
    TestServer { running, permits, begun, directory }
}

impl TestServer {
    async fn connect(&self) -> Channel {
        connect(&self.running.grpc_address).await
    }
}

async fn connect(listen: &GrpcListen) -> Channel {
    let endpoint = match listen {
        GrpcListen::Tcp(address) => format!("http://{address}"),
        GrpcListen::Unix(path) => format!("unix:{}", path.display()),
    };
    Endpoint::try_from(endpoint).expect("an endpoint").connect().await.expect("connected")
}

async fn decide(channel: Channel) -> Result<(), Code> {
    let answer = RateLimitServiceClient::new(channel).should_rate_limit(RateLimitRequest::default()).await;
    answer.map(|_| ()).map_err(|status| status.code())
}

/// End of a request head.
const CLOSE_HEADERS: &str = "Host: t\r\nConnection: close\r\n\r\n";

/// Headers of a JSON body of 15 bytes.
const JSON_HEADERS: &str = "Content-Type: application/json\r\nContent-Length: 15\r\n";

async fn get(address: SocketAddr, path: &'static str) -> String {
    fetch(address, format!("GET {path} HTTP/1.1\r\n{CLOSE_HEADERS}")).await
}

async fn fetch(address: SocketAddr, request: String) -> String {
    let fetched = spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    fetched.await.expect("fetched").expect("an answer")
}
