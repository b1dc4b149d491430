//! Where counters live.

use std::{fmt, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    error::Problem,
    value::{count, positive_duration},
};
use crate::store::redis::RedisSettings;

/// Where counters live.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// In this process.
    Memory {
        /// Counters kept at most.
        max_counters: usize,
    },
    /// In Redis.
    Redis(RedisSettings),
}

/// The store without its secrets, for people: `memory`, or the URL with `***` for the password.
impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { .. } => f.write_str("memory"),
            Self::Redis(settings) => f.write_str(&masked(&settings.url)),
        }
    }
}

#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(super) struct StoreFlags {
    /// Where counters live: `memory` (the limits hold for this instance alone),
    /// `redis://[user:password@]host:port[/db]`, `rediss://…` (TLS), or `redis+unix:///path/to/socket`.
    #[arg(long, value_name = "memory|URL", default_value = "memory", value_parser = location)]
    store: Location,
    /// How long a decision of the store may take. Envoy itself waits 20 ms unless told otherwise.
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = positive_duration)]
    store_timeout: Duration,
    /// Text that goes before every key in Redis, so that several installations can share one. No braces: they
    /// would decide which keys share a shard.
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = key_prefix, hide_default_value = true)]
    key_prefix: String,
    /// PEM file of the authorities that may sign the certificate of Redis. Default: those of the web.
    #[arg(long, value_name = "FILE")]
    redis_ca: Option<PathBuf>,
    /// PEM file of the certificate to show to Redis; needs --redis-client-key.
    #[arg(long, value_name = "FILE")]
    redis_client_cert: Option<PathBuf>,
    /// PEM file of that certificate's key.
    #[arg(long, value_name = "FILE")]
    redis_client_key: Option<PathBuf>,
    /// Counters that the memory store keeps at most.
    #[arg(long, value_name = "COUNT", default_value = "1000000", value_parser = count)]
    max_counters: usize,
}

impl StoreFlags {
    pub(super) fn resolve(self) -> Result<StoreSettings, Problem> {
        let client_certificate = match (self.redis_client_cert, self.redis_client_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(Problem::new("--redis-client-cert", "needs --redis-client-key")),
            (None, Some(_)) => return Err(Problem::new("--redis-client-key", "needs --redis-client-cert")),
        };
        Ok(match self.store {
            Location::Memory => StoreSettings::Memory { max_counters: self.max_counters },
            Location::Redis(url) => StoreSettings::Redis(RedisSettings {
                url,
                timeout: self.store_timeout,
                key_prefix: self.key_prefix,
                ca_certificate: self.redis_ca,
                client_certificate,
            }),
        })
    }
}

#[derive(Clone)]
enum Location {
    Memory,
    Redis(String),
}

fn location(text: &str) -> Result<Location, String> {
    const EXPECTED: &str = "expected memory, redis://HOST:PORT, rediss://HOST:PORT or redis+unix:///PATH";
    if text == "memory" {
        return Ok(Location::Memory);
    }
    let (scheme, rest) = text.split_once("://").ok_or(EXPECTED)?;
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let known = match scheme {
        "redis" | "rediss" => !host.is_empty() && !host.starts_with(['/', ':', '?']),
        "redis+unix" | "unix" => rest.starts_with('/') && rest.len() > 1,
        "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" => {
            return Err(format!("{scheme} is not supported yet; {EXPECTED}"));
        }
        _ => false,
    };
    match known {
        true if host.contains(',') => {
            Err("several hosts (cluster, Sentinel) are not supported yet".to_owned())
        }
        true => Ok(Location::Redis(text.to_owned())),
        false => Err(EXPECTED.to_owned()),
    }
}

fn key_prefix(text: &str) -> Result<String, String> {
    match text.contains(['{', '}']) {
        true => Err("expected no braces: they would decide which keys share a shard".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// `url` with `***` in place of its password, wherever the forms of a URL have one.
fn masked(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    // The login first: an unescaped `?` may stand in its password.
    // A path to a socket has none, and its query has the password.
    let login = rest.rsplit_once('@').filter(|_| !rest.starts_with('/'));
    let (login, rest) = login.map_or((None, rest), |(login, host)| (Some(login), host));
    let (host, query) = rest.split_once('?').map_or((rest, None), |(host, query)| (host, Some(query)));
    let mut text = match login {
        Some(login) => {
            let user = login.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}://{user}:***@{host}")
        }
        None => format!("{scheme}://{host}"),
    };
    for (at, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        text.push(if at == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name @ ("pass" | "password"), _)) => text.push_str(&format!("{name}=***")),
            _ => text.push_str(pair),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_in_every_form_of_a_url() {
        for (url, shown) in [
            ("redis://host:6379/1", "redis://host:6379/1"),
            ("redis://:secret@host:6379", "redis://:***@host:6379"),
            ("rediss://user:secret@host", "rediss://user:***@host"),
            ("redis://user:se@cret@host", "redis://user:***@host"),
            ("redis://:se?cret@host?db=1", "redis://:***@host?db=1"),
            ("redis+unix:///run/redis?pass=p@ss:w@rd&db=1", "redis+unix:///run/redis?pass=***&db=1"),
            ("redis://secret@host", "redis://:***@host"),
            (
                "redis+unix:///run/redis?db=1&pass=secret&user=u",
                "redis+unix:///run/redis?db=1&pass=***&user=u",
            ),
        ] {
            assert_eq!(masked(url), shown);
        }
    }

    #[test]
    fn only_stores_that_work_are_accepted() {
        assert!(matches!(location("memory"), Ok(Location::Memory)));
        for url in ["redis://h", "rediss://u:p@h:1/2", "redis+unix:///run/redis.sock"] {
            assert!(matches!(location(url), Ok(Location::Redis(_))), "{url}");
        }
        for url in ["", "Memory", "redis://", "redis://:p@", "http://h", "redis+unix://run", "h:6379"] {
            assert!(location(url).is_err(), "{url}");
        }
        for url in ["redis+cluster://a,b", "redis+sentinel://a/main", "redis://a:1,b:2"] {
            assert!(location(url).is_err_and(|error| error.contains("not supported yet")), "{url}");
        }
    }

    #[test]
    fn a_key_prefix_has_no_braces() {
        assert!(key_prefix("prod:").is_ok());
        assert!(key_prefix("{prod}").is_err());
    }
}
