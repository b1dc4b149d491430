//! Settings of a run.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use http::Uri;

/// The placeholder in a descriptor that the number of a key replaces.
pub const KEY: &str = "{key}";

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct LoadSettings {
    /// Servers under load; at least one.
    pub targets: Vec<Target>,
    /// Domain of the requests.
    pub domain: String,
    /// Keys and values of each descriptor of every request, in which [`KEY`] stands for the number of a key.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// Hits of each request.
    pub hits: NonZeroU32,
    /// Number of keys.
    pub keys: usize,
    /// Exponent of the Zipf distribution over the keys; 0 for a uniform one.
    pub zipf: f64,
    /// Connections of all threads together.
    pub connections: usize,
    /// Concurrent requests on a connection.
    pub streams: usize,
    /// Whether the load is an open or a closed loop.
    pub model: LoadModel,
    /// Length of the measurement.
    pub duration: Duration,
    /// Load before the measurement.
    pub warmup: Duration,
    /// Time limit of each request.
    pub timeout: Duration,
    /// Whether requests carry the time limit as `grpc-timeout`.
    pub sends_deadline: bool,
    /// Threads that send requests; no more than there are connections.
    pub threads: usize,
    /// Seed of the sequence of keys.
    pub seed: u64,
    /// Hits that a key may be admitted before the run fails.
    pub admitted_limit: Option<u64>,
    /// Whether the report is JSON.
    pub json: bool,
    /// Whether progress is hidden.
    pub quiet: bool,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadModel {
    /// Each stream sends its next request when it has a response.
    Closed,
    /// Requests per second, independent of responses.
    Open(f64),
}

/// A server, by host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(String);

impl Target {
    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// A text that is not the URL of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST:PORT")]
pub struct InvalidTarget;

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let uri: Uri = text.parse().map_err(|_| InvalidTarget)?;
        let (Some("http"), Some(host), Some(port)) = (uri.scheme_str(), uri.host(), uri.port_u16()) else {
            return Err(InvalidTarget);
        };
        match uri.path_and_query().map(|path| path.as_str()) {
            None | Some("/") if !host.is_empty() => Ok(Self(format!("{host}:{port}"))),
            _ => Err(InvalidTarget),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let authority = |text: &str| text.parse().map(|target: Target| target.authority().to_owned());
        assert_eq!(authority("http://localhost:8081").as_deref(), Ok("localhost:8081"));
        assert_eq!(authority("http://[::1]:1/").as_deref(), Ok("[::1]:1"));
        for text in ["", "localhost:8081", "http://localhost", "https://a:1", "http://a:1/b", "http://:1"] {
            assert!(authority(text).is_err(), "{text}");
        }
    }
}
