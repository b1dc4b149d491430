//! URL of the receiver, one request to it, and its signature.

use std::fmt::{self, Write as _};
use std::{path::Path, str::FromStr, sync::Arc, time::Duration};

use ring::hmac;
use tollgate_control::LoggedEvent;
use tollgate_flags::{Secret, web_url};
use tollgate_runtime::{bounded_file, http_client, redact};
use ureq::Agent;

use super::WebhookSettings;

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum length of a secret in bytes.
const MIN_SECRET_BYTES: usize = 16;

/// Statuses below 500 after which another attempt may succeed: timeout, too early and too many requests.
const TEMPORARY_STATUSES: [u16; 3] = [408, 425, 429];

/// An `http` or `https` URL; shown without its path and query, which are often a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    shown: String,
    /// The URL with its path and query.
    whole: String,
}

impl FromStr for WebhookUrl {
    type Err = Secret;

    fn from_str(text: &str) -> Result<Self, Secret> {
        const EXPECTED: &str = "expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH, without a user and with a \
                                port from 1 to 65535";
        let uri = web_url(text, EXPECTED).map_err(|_| Secret(EXPECTED))?;
        let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority());
        let shown = format!("{scheme}://{}/***", authority.map_or("", |authority| authority.as_str()));
        Ok(Self { shown, whole: text.to_owned() })
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The receiver accepted the event.
    Delivered,
    /// The receiver refuses this event for good.
    Refused(String),
    /// Another attempt may succeed.
    Failed(String),
}

/// Client of the receiver. Blocks.
#[derive(Clone, Debug)]
pub(super) struct Receiver(pub(super) Arc<WebhookSettings>);

impl Receiver {
    /// The receiver for people, without secrets.
    pub(super) fn address(&self) -> String {
        self.0.url.to_string()
    }

    /// Sends an event at this time, in seconds since 1970.
    pub(super) fn send(&self, event: &LoggedEvent, now_s: u64) -> Attempt {
        match self.try_send(event, now_s) {
            Ok(status) if (200..300).contains(&status) => Attempt::Delivered,
            Ok(status) if status >= 500 || TEMPORARY_STATUSES.contains(&status) => {
                Attempt::Failed(format!("status {status}"))
            }
            Ok(status) => Attempt::Refused(format!("status {status}")),
            Err(reason) => Attempt::Failed(reason),
        }
    }

    fn try_send(&self, event: &LoggedEvent, now_s: u64) -> Result<u16, String> {
        let settings = &*self.0;
        let body = serde_json::to_vec(event).map_err(|error| error.to_string())?;
        let mut request = self
            .agent()?
            .post(&settings.url.whole)
            .header("content-type", "application/json")
            .header("user-agent", concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .header("tollgate-event-id", &event.id)
            .header("tollgate-timestamp", now_s.to_string());
        if let Some(file) = &settings.secret_file {
            request = request.header("tollgate-signature", signature(&secret(file)?, now_s, &body));
        }
        request
            .send(&body)
            .map(|response| response.status().as_u16())
            .map_err(|error| http_client::reason(&error))
    }

    /// An agent for one request: events are rare, and files may have changed.
    fn agent(&self) -> Result<Agent, String> {
        let roots = http_client::roots(self.0.ca_certificate.as_deref())?;
        Ok(http_client::agent(roots, None, TIMEOUT))
    }
}

/// `sha256=` and the HMAC of the time, a dot and the body, in hexadecimal.
fn signature(secret: &[u8], now_s: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    context.update(now_s.to_string().as_bytes());
    context.update(b".");
    context.update(body);
    context.sign().as_ref().iter().fold("sha256=".to_owned(), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads the secret, without the white space around it.
fn secret(file: &Path) -> Result<Vec<u8>, String> {
    let text =
        bounded_file::read(file).map_err(|error| format!("secret file {}: {error}", redact::path(file)))?;
    let secret = text.trim_ascii();
    if secret.len() < MIN_SECRET_BYTES {
        return Err(format!("the secret is too short; expected {MIN_SECRET_BYTES} bytes or more"));
    }
    Ok(secret.to_vec())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use tollgate_fixtures::temporary_file;

    #[test]
    fn a_signature_is_the_hmac_of_the_time_and_the_body() {
        // As `hmac.new(b"0123456789abcdef", b"1700000000.{}", "sha256").hexdigest()` in Python.
        assert_eq!(
            signature(b"0123456789abcdef", 1_700_000_000, b"{}"),
            "sha256=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e"
        );
    }

    #[test]
    fn a_secret_has_16_bytes_or_more_and_no_space_around_it() {
        let (_directory, file) = temporary_file("secret");
        for (text, expected) in
            [(" 0123456789abcdef\n", Ok(b"0123456789abcdef".to_vec())), ("short\n", Err(()))]
        {
            fs::write(&file, text).expect("written");
            assert_eq!(secret(&file).map_err(drop), expected);
        }
        let error = secret(Path::new("open-sesame-20-bytes")).expect_err("no file");
        assert!(!error.contains("open-sesame"), "{error}");
    }

    #[test]
    fn the_path_of_a_url_is_not_shown() {
        let text = "https://hooks.example.org:8443/services/open-sesame?token=1";
        let url: WebhookUrl = text.parse().expect("valid");
        assert_eq!(url.whole, text);
        assert_eq!(
            format!("{url} {url:?}"),
            "https://hooks.example.org:8443/*** https://hooks.example.org:8443/***"
        );
    }

    #[test]
    fn a_url_has_a_scheme_and_a_host_and_no_user() {
        for text in ["", "hooks.example.org", "ftp://h/", "https://user:password@h/", "https://", "/path"] {
            let error = text.parse::<WebhookUrl>().expect_err("invalid");
            assert!(!error.0.contains("password"), "{error}");
        }
    }
}
