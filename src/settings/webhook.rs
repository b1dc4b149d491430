//! Settings of the webhook.

use std::path::PathBuf;

use clap::Args;

use super::error::Problem;
use crate::fleet::{WebhookSettings, WebhookUrl};

#[derive(Args, Debug)]
#[command(next_help_heading = "Events")]
pub(super) struct WebhookFlags {
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

impl WebhookFlags {
    pub(super) fn resolve(self) -> Result<Option<WebhookSettings>, Problem> {
        match self.webhook_url {
            Some(url) => Ok(Some(WebhookSettings {
                url,
                secret_file: self.webhook_secret_file,
                ca_certificate: self.webhook_ca,
            })),
            None if self.webhook_secret_file.is_some() => {
                Err(Problem::new("--webhook-secret-file", "requires --webhook-url"))
            }
            None if self.webhook_ca.is_some() => Err(Problem::new("--webhook-ca", "requires --webhook-url")),
            None => Ok(None),
        }
    }
}
