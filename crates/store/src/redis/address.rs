//! Address of a server: host and port.

use std::{fmt, sync::Arc};

/// Maximum length of a host name, that of DNS.
const MAX_HOST_BYTES: usize = 253;

/// A host name or an IP address, and a port.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Parses a comma-separated list without empty items, with or without blanks around them. The error does not quote
    /// them: they may be the rest of a password that was not escaped.
    pub(super) fn parse_list(text: &str, default_port: u16) -> Result<Vec<Self>, String> {
        let malformed =
            || "malformed server list; expected comma-separated HOST:PORT or [IPV6]:PORT".to_owned();
        text.split(',')
            .map(|address| Self::parse(address.trim(), default_port).ok_or_else(malformed))
            .collect()
    }

    fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']')?,
            None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
        };
        let port = match port {
            "" => default_port,
            port => port.strip_prefix(':')?.parse().ok().filter(|port| *port != 0)?,
        };
        let is_valid = !host.is_empty() && host.bytes().all(|byte| is_host_byte(byte) && byte != b'%');
        is_valid.then(|| Self::new(host, port))
    }

    /// Parses an address of a cluster's redirection: an IPv6 address has no brackets there, and an absent host stands
    /// for that of the `queried` node.
    pub(super) fn from_redirect(text: &str, queried: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::from_node(host, port.parse().ok()?, queried)
    }

    /// The address of a node that announces `host`; `?` stands for a host unknown to the node itself. A text that cannot be
    /// the name of a host counts as unknown too.
    pub(super) fn from_node(host: &str, port: u16, queried: &Self) -> Option<Self> {
        match host {
            // Not announced yet.
            _ if port == 0 => None,
            "?" => None,
            "" => Some(Self { host: Arc::clone(&queried.host), port }),
            host if host.len() > MAX_HOST_BYTES || !host.bytes().all(is_host_byte) => None,
            host => Some(Self::new(host, port)),
        }
    }
}

/// Whether a host name or an IP address, possibly with a zone, can contain a byte.
const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'%')
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_hosts_with_or_without_ports() {
        let list = Address::parse_list("a, b:1 ,[::1]:2,[fe80::1]", 26379).expect("valid");
        assert_eq!(format!("{list:?}"), "[a:26379, b:1, [::1]:2, [fe80::1]:26379]");
        for text in [
            "", "a,", "a:x", "a:0", "a:70000", "::1", "[::1", "[::1]2", ":1", "u:p@h", "a:1:2", "a b",
            "a\nb:1",
        ] {
            assert!(Address::parse_list(text, 1).is_err(), "{text}");
        }
    }

    #[test]
    fn a_redirection_may_leave_the_host_out() {
        let queried = Address::new("queried", 1);
        let from_redirect = |text| Address::from_redirect(text, &queried).map(|address| address.to_string());
        assert_eq!(from_redirect("10.0.0.1:7001").as_deref(), Some("10.0.0.1:7001"));
        assert_eq!(from_redirect("::1:7001").as_deref(), Some("[::1]:7001"));
        assert_eq!(from_redirect("node.example:7001").as_deref(), Some("node.example:7001"));
        assert_eq!(from_redirect(":7001").as_deref(), Some("queried:7001"));
        assert_eq!(
            [from_redirect("?:7001"), from_redirect("x"), from_redirect("x:y"), from_redirect("x:0")],
            [None, None, None, None]
        );
        let long = format!("{}:1", "x".repeat(MAX_HOST_BYTES + 1));
        assert_eq!(
            ["a b:1", "a\nERROR forged:1", "a@b:1", "\x1b[31m:1", &*long].map(from_redirect),
            [const { None }; 5]
        );
    }
}
