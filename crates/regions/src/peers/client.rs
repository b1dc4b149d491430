//! Client of one other region, and its connection.

use std::time::{Duration, Instant};

use hyper_util::client::legacy::connect::HttpConnector;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{self, MissedTickBehavior, sleep, timeout};
use tokio::{select, sync::mpsc};
use tollgate_core::clock::Clock;
use tollgate_proto::tollgate::region::v1::{ExchangeRequest, regions_client::RegionsClient};
use tollgate_rules::RegionEntry;
use tollgate_runtime::{backoff::Backoff, redact::with_sources};
use tollgate_serve::net::TlsSettings;
use tonic::transport::{Channel, Endpoint};

use super::{service::MAX_LOAN_REQUESTS, tls};
use crate::{Regions, state::OutgoingLoanRequest};

/// Interval of exchanges without other messages.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which loan requests wait for others, to be sent in one message.
const BATCH_DELAY: Duration = Duration::from_millis(10);

/// Time limit of one exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of exchanges in progress, and of loan requests that wait.
const MAX_EXCHANGES: usize = 64;
const MAX_WAITING: usize = 1_024;

/// Maximum length of a reply in bytes.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// First and maximum pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Client of one other region.
#[derive(Debug)]
pub(super) struct PeerClient {
    peer: Peer,
    loan_requests: mpsc::Receiver<OutgoingLoanRequest>,
}

/// The region of a client.
#[derive(Clone, Debug)]
struct Peer {
    entry: RegionEntry,
    tls: TlsSettings,
    regions: Regions,
}

impl PeerClient {
    pub(super) fn new(entry: RegionEntry, tls: TlsSettings, regions: Regions) -> Self {
        let (sender, loan_requests) = mpsc::channel(MAX_WAITING);
        regions.set_loan_requests(&entry.name, sender);
        Self { peer: Peer { entry, tls, regions }, loan_requests }
    }

    /// Exchanges messages, and connects again after failures. Never completes.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        loop {
            let error = match connect(&self.peer.entry, &self.peer.tls).await {
                Ok(channel) => {
                    self.peer.regions.set_channel(&self.peer.entry.name, Some(channel.clone()));
                    self.exchange_all(channel, &mut backoff).await
                }
                Err(error) => error,
            };
            self.peer.regions.set_channel(&self.peer.entry.name, None);
            self.peer.regions.unreachable(&self.peer.entry.name, error);
            // Their borrowers wait no longer.
            while self.loan_requests.try_recv().is_ok() {}
            sleep(backoff.pause()).await;
        }
    }

    /// Exchanges messages until one fails, and returns the reason.
    async fn exchange_all(&mut self, channel: Channel, backoff: &mut Backoff) -> String {
        let client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
        let mut exchanges = JoinSet::new();
        let mut ticks = time::interval(ANNOUNCE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut batch, mut due) = (Vec::new(), time::Instant::now());
        loop {
            let has_room = exchanges.len() < MAX_EXCHANGES;
            select! {
                biased;
                Some(done) = exchanges.join_next() => match done {
                    Ok(Ok(())) => backoff.reset(),
                    Ok(Err(error)) => return error,
                    Err(_) => return "a panic; see the log".to_owned(),
                },
                () = time::sleep_until(due), if has_room && !batch.is_empty() => {
                    exchanges.spawn(self.peer.clone().exchange(client.clone(), std::mem::take(&mut batch)));
                }
                Some(request) = self.loan_requests.recv(), if batch.len() < MAX_LOAN_REQUESTS => {
                    if batch.is_empty() {
                        due = time::Instant::now() + BATCH_DELAY;
                    }
                    batch.push(request);
                }
                _ = ticks.tick(), if has_room => {
                    exchanges.spawn(self.peer.clone().exchange(client.clone(), Vec::new()));
                }
            }
        }
    }
}

impl Peer {
    async fn exchange(
        self,
        mut client: RegionsClient<Channel>,
        batch: Vec<OutgoingLoanRequest>,
    ) -> Result<(), String> {
        let (sent_at, sent) = (Clock::System.now(), Instant::now());
        let (loan_requests, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|out| (out.request, out.reply)).unzip();
        let request = ExchangeRequest { sender: Some(self.regions.announcement()), loan_requests };
        let reply = match timeout(EXCHANGE_TIMEOUT, client.exchange(request)).await {
            Ok(Ok(reply)) => reply.into_inner(),
            Ok(Err(status)) => return Err(with_sources(&status)),
            Err(_) => return Err(format!("no reply within {} s", EXCHANGE_TIMEOUT.as_secs())),
        };
        let round_trip = sent.elapsed();
        let Some(sender) = reply.sender.as_ref().filter(|sender| *sender.region == *self.entry.name) else {
            return Err("the reply is of another region; expected the one of the address".to_owned());
        };
        self.regions.replied(sender, sent_at, round_trip);
        if reply.replies.len() != waiting.len() {
            return Err("a reply with other answers than loan requests; expected one for each".to_owned());
        }
        for (answer, waiting) in reply.replies.into_iter().zip(waiting) {
            // A borrower whose time is over does not wait any more.
            let _ = waiting.send(answer);
        }
        Ok(())
    }
}

/// Time limit for name resolution, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without a message before an HTTP/2 ping, and limit for its reply.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the address of `entry`, whose certificate must have its name.
///
/// # Errors
/// The reason, without contents of files.
pub(super) async fn connect(entry: &RegionEntry, settings: &TlsSettings) -> Result<Channel, String> {
    let (settings, name) = (settings.clone(), entry.certificate_name.to_string());
    let tls = spawn_blocking(move || tls::client_config(&settings, name)).await;
    let tls = tls.map_err(|_| "shutting down".to_owned())??.timeout(CONNECT_TIMEOUT);
    let endpoint = Endpoint::from_shared(entry.address.to_string()).map_err(|error| with_sources(&error))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .tls_config(tls)
        .map_err(|error| with_sources(&error))?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    match timeout(CONNECT_TIMEOUT, endpoint.connect_with_connector(tcp)).await {
        Ok(connected) => connected.map_err(|error| with_sources(&error)),
        Err(_) => Err(format!("connect timed out after {} s", CONNECT_TIMEOUT.as_secs())),
    }
}
