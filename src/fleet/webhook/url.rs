//! URL of a webhook. Its path and query are often a secret, and are not shown.

use std::{fmt, str::FromStr};

use http::Uri;

/// An `http` or `https` URL; shown without its path and query.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    scheme: &'static str,
    authority: String,
    whole: String,
}

impl WebhookUrl {
    /// The URL with its path and query.
    pub(super) fn secret(&self) -> &str {
        &self.whole
    }
}

impl FromStr for WebhookUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH, without a user";
        let uri: Uri = text.parse().map_err(|_| EXPECTED)?;
        let scheme = match uri.scheme_str() {
            Some("http") => "http",
            Some("https") => "https",
            _ => return Err(EXPECTED.to_owned()),
        };
        match uri.authority() {
            Some(authority) if !authority.as_str().contains('@') => {
                Ok(Self { scheme, authority: authority.to_string(), whole: text.to_owned() })
            }
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/***", self.scheme, self.authority)
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_url_is_not_shown() {
        let text = "https://hooks.example.org:8443/services/open-sesame?token=1";
        let url: WebhookUrl = text.parse().expect("valid");
        assert_eq!(url.secret(), text);
        assert_eq!(
            format!("{url} {url:?}"),
            "https://hooks.example.org:8443/*** https://hooks.example.org:8443/***"
        );
    }

    #[test]
    fn a_url_has_a_scheme_and_a_host_and_no_user() {
        for text in ["", "hooks.example.org", "ftp://h/", "https://user:password@h/", "https://", "/path"] {
            let error = text.parse::<WebhookUrl>().expect_err("invalid");
            assert!(!error.contains("password"), "{error}");
        }
    }
}
