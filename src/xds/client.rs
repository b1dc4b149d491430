//! From stream to stream, for as long as the process runs.

use std::{convert::Infallible, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Rules,
    backoff::Backoff,
    connect::connect,
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
            let lost = match connect(&self.settings).await {
                Ok(connection) => {
                    let begun = Instant::now();
                    let lost = stream::converse(&mut self, connection).await;
                    if begun.elapsed() >= STEADY && !matches!(lost, StreamError::Mute(_)) {
                        backoff.reset();
                    }
                    lost.to_string()
                }
                Err(error) => error.to_string(),
            };
            self.outage.goes_on(lost);
            sleep(backoff.pause(|most| fastrand::u64(..=most))).await;
        }
    }
}
