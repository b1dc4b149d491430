//! Subscription to the rules of a control plane: opens one stream after the other, with backoff.

use std::{convert::Infallible, time::Duration};

use http::Uri;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tollgate_runtime::backoff::{Backoff, Jitter};

use super::stream::{self, StreamError};
use super::{RulesSink, XdsSettings, connect::connect, session::Client};

/// A subscription to the rules of a control plane; ends on drop.
#[derive(Debug)]
pub struct Subscription {
    _task: AbortOnDropHandle<Infallible>,
    accepted: watch::Receiver<bool>,
}

impl Subscription {
    /// Subscribes to the rules of a server, on the current runtime.
    pub fn start(server: &Uri, settings: XdsSettings, rules: RulesSink) -> Self {
        let (accepted_sender, accepted) = watch::channel(false);
        let task = tokio::spawn(run(Client::new(server.clone(), settings, rules, accepted_sender)));
        Self { _task: AbortOnDropHandle::new(task), accepted }
    }

    /// Waits for the first accepted rules.
    pub async fn first_accepted(&mut self) {
        // The sender lives as long as the process.
        let _ = self.accepted.wait_for(|is_accepted| *is_accepted).await;
    }
}

/// Lifetime of a stream that resets the backoff: a control plane that closes streams sooner may be overloaded.
const STABLE_STREAM_TIME: Duration = Duration::from_secs(10);

/// Follows a control plane, and connects again when a stream ends.
async fn run(mut client: Client) -> Infallible {
    let settings = client.settings.backoff;
    let mut backoff = Backoff::with_jitter(settings.initial, settings.max, Jitter::Shorten(settings.jitter));
    loop {
        let reason = match connect(&client.server, &client.settings).await {
            Ok(connection) => {
                let opened = Instant::now();
                let error = stream::run(&mut client, connection).await;
                if opened.elapsed() >= STABLE_STREAM_TIME && !matches!(error, StreamError::NoResponse(_)) {
                    backoff.reset();
                }
                error.to_string()
            }
            Err(reason) => reason,
        };
        client.status.disconnected(reason);
        sleep(backoff.pause()).await;
    }
}
