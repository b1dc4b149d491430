//! Client of one other region.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tollgate_core::clock::Clock;
use tollgate_rules::RegionEntry;
use tollgate_runtime::backoff::Backoff;
use tonic::transport::Channel;

use super::connect::{connect, with_sources};
use crate::{
    proto::tollgate::region::v1::{ExchangeReply, ExchangeRequest, regions_client::RegionsClient},
    regions::{Regions, metrics, state::Exchange},
    settings::TlsSettings,
};

/// Interval of exchanges without other messages.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of one exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum length of a reply in bytes.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// First and maximum pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Client of one other region.
#[derive(Debug)]
pub(super) struct PeerClient {
    entry: RegionEntry,
    tls: TlsSettings,
    regions: Regions,
}

impl PeerClient {
    pub(super) const fn new(entry: RegionEntry, tls: TlsSettings, regions: Regions) -> Self {
        Self { entry, tls, regions }
    }

    /// Exchanges messages, and connects again after failures. Never completes.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        loop {
            let error = match connect(&self.entry, &self.tls).await {
                Ok(channel) => {
                    self.regions.set_channel(&self.entry.name, Some(channel.clone()));
                    self.exchange_all(channel, &mut backoff).await
                }
                Err(error) => error,
            };
            metrics::exchange_failed(&self.entry.name);
            self.regions.set_channel(&self.entry.name, None);
            self.regions.unreachable(&self.entry.name, error);
            sleep(backoff.pause()).await;
        }
    }

    /// Exchanges messages until one fails, and returns the reason.
    async fn exchange_all(&self, channel: Channel, backoff: &mut Backoff) -> String {
        let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
        let mut exchanges = 0_u64;
        loop {
            let (sent_at, sent) = (Clock::System.now(), Instant::now());
            let request = ExchangeRequest { sender: Some(self.regions.announcement()) };
            let reply = match timeout(EXCHANGE_TIMEOUT, client.exchange(request)).await {
                Ok(Ok(reply)) => reply.into_inner(),
                Ok(Err(status)) => return with_sources(&status),
                Err(_) => return format!("no reply within {} s", EXCHANGE_TIMEOUT.as_secs()),
            };
            let round_trip = sent.elapsed();
            metrics::exchanged(&self.entry.name, round_trip);
            if let Err(error) = self.take(&reply, Exchange { sent_at, round_trip }) {
                return error;
            }
            exchanges = exchanges.saturating_add(1);
            if exchanges == 1 {
                backoff.reset();
            }
            sleep(ANNOUNCE_INTERVAL).await;
        }
    }

    /// Handles a reply.
    fn take(&self, reply: &ExchangeReply, exchange: Exchange) -> Result<(), String> {
        let sender = reply.sender.as_ref().filter(|sender| *sender.region == *self.entry.name);
        let Some(sender) = sender else {
            return Err("the reply is of another region; expected the one of the address".to_owned());
        };
        self.regions.replied(sender, exchange);
        Ok(())
    }
}
