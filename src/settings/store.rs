//! Where counters live.

use std::{fmt, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    error::Problem,
    parsers::{count, positive_duration},
};
use crate::store::redis::{RedisSettings, RedisUrl};

/// Where counters live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// In this process.
    Memory {
        /// Counters kept at most.
        max_counters: usize,
    },
    /// In Redis.
    Redis {
        /// How to reach it.
        redis: RedisSettings,
        /// Counters kept at most in this process while Redis does not decide.
        max_counters: usize,
    },
}

/// The store without its secrets, for people: `memory`, or the URL with `***` for the password.
impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { .. } => f.write_str("memory"),
            Self::Redis { redis, .. } => redis.servers.fmt(f),
        }
    }
}

#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(super) struct StoreFlags {
    /// Where counters live: `memory` (the limits hold for this instance alone),
    /// `redis://[user:password@]host:port[/db]`, `redis+unix:///path/to/socket`,
    /// `redis+sentinel://[user:password@]host:port,…/master[?db=N&sentinel_username=…&sentinel_password=…]`, or
    /// `redis+cluster://[user:password@]host:port,…`. `rediss` in place of `redis` is TLS.
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
    /// Counters that are kept in this process at most, by the memory store or while Redis does not decide; every four hits of a log or places of a concurrency limit count as
    /// one.
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
            Location::Redis(servers) => {
                let redis = RedisSettings {
                    servers,
                    timeout: self.store_timeout,
                    key_prefix: self.key_prefix,
                    ca_certificate: self.redis_ca,
                    client_certificate,
                };
                StoreSettings::Redis { redis, max_counters: self.max_counters }
            }
        })
    }
}

#[derive(Clone)]
enum Location {
    Memory,
    Redis(RedisUrl),
}

fn location(text: &str) -> Result<Location, String> {
    match text {
        "memory" => Ok(Location::Memory),
        url => url.parse().map(Location::Redis).map_err(|error| match url.contains("://") {
            true => error,
            false => format!("{error}; or memory"),
        }),
    }
}

fn key_prefix(text: &str) -> Result<String, String> {
    match text.contains(['{', '}']) {
        true => Err("expected no braces: they would decide which keys share a shard".to_owned()),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stores_that_work_are_accepted() {
        assert!(matches!(location("memory"), Ok(Location::Memory)));
        for url in ["redis://h", "rediss://u:p@h:1/2", "redis+unix:///run/redis.sock", "redis+cluster://a,b"]
        {
            assert!(matches!(location(url), Ok(Location::Redis(_))), "{url}");
        }
        for url in [
            "",
            "Memory",
            "redis://",
            "redis://:p@",
            "http://h",
            "redis+unix://run",
            "h:6379",
            "redis://h:port",
            "redis://h:65536",
            "redis://h/db",
        ] {
            assert!(location(url).is_err(), "{url}");
        }
        assert!(location("redis://a:1,b:2").is_err_and(|error| error.contains("redis+cluster://")));
    }

    #[test]
    fn a_key_prefix_has_no_braces() {
        assert!(key_prefix("prod:").is_ok());
        assert!(key_prefix("{prod}").is_err());
    }
}
