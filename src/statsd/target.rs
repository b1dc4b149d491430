//! Address of a StatsD server.

use std::{fmt, path::PathBuf, str::FromStr};

/// A StatsD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `HOST:PORT`, by UDP.
    Udp(String),
    /// `HOST:PORT`, by TCP.
    Tcp(String),
    /// A unix datagram socket.
    Unix(PathBuf),
}

/// A text that is not the address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH")]
pub struct TargetError;

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        match text.split_once("://").ok_or(TargetError)? {
            ("udp", server) => host_and_port(server).map(Self::Udp),
            ("tcp", server) => host_and_port(server).map(Self::Tcp),
            ("unix", path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            _ => Err(TargetError),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(server) => write!(f, "udp://{server}"),
            Self::Tcp(server) => write!(f, "tcp://{server}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Checks the form only. The host is resolved at each use, so it need not exist yet.
fn host_and_port(server: &str) -> Result<String, TargetError> {
    let (host, port) = server.rsplit_once(':').ok_or(TargetError)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    let is_name = !host.is_empty() && !host.contains([':', '/', '@', '[', ']', '?', '#', ' ']);
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+');
    if (is_bracketed || is_name) && is_port { Ok(server.to_owned()) } else { Err(TargetError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host_with_a_port_or_a_path() {
        for good in [
            "udp://localhost:8125",
            "tcp://[::1]:9125",
            "udp://10.0.0.1:1",
            "unix:///var/run/datadog/dsd.socket",
        ] {
            assert_eq!(good.parse::<Target>().map(|target| target.to_string()).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "localhost:8125",
            "http://localhost:8125",
            "udp://localhost",
            "udp://:8125",
            "udp://localhost:0",
            "udp://localhost:65536",
            "tcp://::1:8125",
            "tcp://[]:8125",
            "udp://user@host:8125",
            "udp://host/x:8125",
            "udp://host:+1",
            "unix://relative",
            "unix://",
        ] {
            assert_eq!(bad.parse::<Target>(), Err(TargetError), "{bad}");
        }
    }
}
