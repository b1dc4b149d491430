//! Settings of the store.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use tollgate_store::redis::{RedisSettings, RedisUrl};

use super::{
    error::Problem,
    parsers::{boolean, count, positive_duration},
};

/// Store of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// Memory of this process.
    Memory {
        /// Maximum number of counters.
        max_counters: usize,
    },
    /// Redis.
    Redis {
        /// Connection settings.
        redis: RedisSettings,
        /// Maximum number of counters in this process while Redis fails.
        max_counters: usize,
    },
}

/// Shows `memory`, or the URL with `***` in place of the password.
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
    /// Store of the counters: `memory` (limits apply to each instance separately),
    /// `redis://[user:password@]host:port[/db]`, `redis+unix:///path/to/socket`,
    /// `redis+sentinel://[user:password@]host:port,…/master[?db=N&sentinel_username=…&sentinel_password=…]`, or
    /// `redis+cluster://[user:password@]host:port,…`. `rediss` instead of `redis` enables TLS.
    #[arg(long, value_name = "memory|URL", default_value = "memory", value_parser = location)]
    store: Location,
    /// Timeout of a decision in Redis. Envoy waits 20 ms by default.
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = positive_duration)]
    store_timeout: Duration,
    /// Prefix of every key in Redis, so that several installations can share one. Without braces, which would
    /// determine the shards of keys.
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = key_prefix, hide_default_value = true)]
    key_prefix: String,
    /// PEM file of the CAs for the certificate of Redis. Default: the Mozilla root CAs.
    #[arg(long, value_name = "FILE")]
    redis_ca: Option<PathBuf>,
    /// PEM file of the client certificate for Redis; requires --redis-client-key.
    #[arg(long, value_name = "FILE")]
    redis_client_cert: Option<PathBuf>,
    /// PEM file of the key of that certificate.
    #[arg(long, value_name = "FILE")]
    redis_client_key: Option<PathBuf>,
    /// Metrics of CPU, memory, evictions, replication and clock of each Redis server, by `INFO` and `TIME` every 5 to 15 s.
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    redis_server_metrics: bool,
    /// Maximum number of counters in this process, of the memory store or while Redis fails. Four hits of a sliding window
    /// log, or four permits of a concurrency limit, count as one.
    #[arg(long, value_name = "COUNT", default_value = "1000000", value_parser = count::<usize>)]
    max_counters: usize,
}

impl StoreFlags {
    pub(super) fn resolve(self) -> Result<StoreSettings, Problem> {
        let client_certificate = match (self.redis_client_cert, self.redis_client_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Problem::new("--redis-client-cert", "requires --redis-client-key"));
            }
            (None, Some(_)) => {
                return Err(Problem::new("--redis-client-key", "requires --redis-client-cert"));
            }
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
                    samples_servers: self.redis_server_metrics,
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
        true => {
            Err("has braces, which would determine the shards of keys; expected text without braces"
                .to_owned())
        }
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_stores_are_accepted() {
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
