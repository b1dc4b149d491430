//! From stream to stream, for as long as the process runs.

use std::{convert::Infallible, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Rules,
    backoff::Backoff,
    connect::{ConnectError, connect},
    outage::Outage,
    session::Session,
    stream::{self, StreamError},
};
use crate::settings::XdsSettings;

/// A stream that lasted so long was none that a control plane can't bear.
const STEADY: Duration = Duration::from_secs(10);

/// The client of one control plane.
pub(super) struct Client {
    pub(super) settings: XdsSettings,
    pub(super) rules: Rules,
    pub(super) session: Session,
    pub(super) outage: Outage,
    pub(super) told: watch::Sender<bool>,
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl Client {
    pub(super) fn new(settings: XdsSettings, rules: Rules, told: watch::Sender<bool>) -> Self {
        let session = Session::new(&settings);
        let server = settings.server.to_string().trim_end_matches('/').to_owned();
        let outage = Outage::new(server, rules.status.clone());
        Self { settings, rules, session, outage, told }
    }

    pub(super) async fn run(mut self) -> Infallible {
        let mut backoff = Backoff::new(self.settings.backoff);
        loop {
            let begun = Instant::now();
            let lost = self.attempt().await;
            self.outage.goes_on(lost.to_string());
            if begun.elapsed() >= STEADY {
                backoff.reset();
            }
            sleep(backoff.pause(|most| fastrand::u64(..=most))).await;
        }
    }

    async fn attempt(&mut self) -> Lost {
        match connect(&self.settings).await {
            Ok(channel) => stream::converse(self, channel).await.into(),
            Err(error) => error.into(),
        }
    }
}
