//! Delivery of events to a webhook.
//!
//! The log of events is the queue, so a receiver that is down delays events and loses none until they are an hour old. A
//! lease in the control store makes one instance deliver, in order. Where that instance stops between a delivery and its
//! record, the event is delivered again: receivers recognize it by its id.

mod delivery;
mod request;
mod url;

pub(super) use self::delivery::Delivery;
pub use self::url::WebhookUrl;

use std::path::PathBuf;

/// Receiver of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// URL that events are sent to.
    pub url: WebhookUrl,
    /// File with the secret that signs events, read for each event.
    pub secret_file: Option<PathBuf>,
    /// PEM file of the CAs for the certificate of the receiver. `None`: the Mozilla root CAs.
    pub ca_certificate: Option<PathBuf>,
}
