//! Opens one stream after the other, with backoff.

use std::{convert::Infallible, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tollgate_runtime::backoff::{Backoff, Jitter};

use super::{
    RulesSink,
    connect::connect,
    session::Session,
    status::ConnectionStatus,
    stream::{self, StreamError},
};
use crate::settings::XdsSettings;

/// Lifetime of a stream that resets the backoff: a control plane that closes streams sooner may be overloaded.
const STABLE_STREAM_TIME: Duration = Duration::from_secs(10);

/// The client of one control plane.
pub(super) struct Client {
    pub(super) settings: XdsSettings,
    pub(super) rules: RulesSink,
    pub(super) session: Session,
    pub(super) status: ConnectionStatus,
    pub(super) accepted: watch::Sender<bool>,
}

impl Client {
    pub(super) fn new(settings: XdsSettings, rules: RulesSink, accepted: watch::Sender<bool>) -> Self {
        let session = Session::new(&settings);
        let server = settings.server.to_string().trim_end_matches('/').to_owned();
        let status = ConnectionStatus::new(server, rules.status.clone());
        Self { settings, rules, session, status, accepted }
    }

    pub(super) async fn run(mut self) -> Infallible {
        let settings = self.settings.backoff;
        let mut backoff =
            Backoff::with_jitter(settings.initial, settings.max, Jitter::Shorten(settings.jitter));
        loop {
            let reason = match connect(&self.settings).await {
                Ok(connection) => {
                    let opened = Instant::now();
                    let error = stream::run(&mut self, connection).await;
                    if opened.elapsed() >= STABLE_STREAM_TIME && !matches!(error, StreamError::NoResponse(_))
                    {
                        backoff.reset();
                    }
                    error.to_string()
                }
                Err(error) => error.to_string(),
            };
            self.status.disconnected(reason);
            sleep(backoff.pause()).await;
        }
    }
}
