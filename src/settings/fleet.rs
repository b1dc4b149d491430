//! Settings of events that operators are notified of.

use std::path::PathBuf;

use clap::Args;

use super::{error::Problem, parsers::number};
use crate::fleet::{FleetSettings, WebhookSettings, WebhookUrl};

#[derive(Args, Debug)]
#[command(next_help_heading = "Events")]
pub(super) struct FleetFlags {
    /// Hits per second of one key, in all instances, at which an event is raised. 0: none.
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = number::<u64>)]
    key_rate_threshold: u64,
    /// Receiver of events, to which each is sent as JSON at least once: http://HOST:PORT/PATH, or https:// for TLS. Its path
    /// and query are treated as a secret.
    #[arg(long, value_name = "URL")]
    webhook_url: Option<WebhookUrl>,
    /// File with the secret, of 16 bytes or more, that signs events (HMAC-SHA256). Read again for each event.
    #[arg(long, value_name = "FILE")]
    webhook_secret_file: Option<PathBuf>,
    /// PEM file of the CAs for the certificate of the receiver. Default: the Mozilla root CAs.
    #[arg(long, value_name = "FILE")]
    webhook_ca: Option<PathBuf>,
}

impl FleetFlags {
    pub(super) fn resolve(self) -> Result<FleetSettings, Problem> {
        let webhook = match self.webhook_url {
            Some(url) => Some(WebhookSettings {
                url,
                secret_file: self.webhook_secret_file,
                ca_certificate: self.webhook_ca,
            }),
            None if self.webhook_secret_file.is_some() => {
                return Err(Problem::new("--webhook-secret-file", "requires --webhook-url"));
            }
            None if self.webhook_ca.is_some() => {
                return Err(Problem::new("--webhook-ca", "requires --webhook-url"));
            }
            None => None,
        };
        Ok(FleetSettings { key_rate_threshold: self.key_rate_threshold, webhook })
    }
}
