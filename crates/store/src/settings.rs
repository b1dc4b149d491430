//! Flags of the store.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{ArgAction::Set, Args};
use tollgate_flags::{KeyPair, boolean, count, key_pair, positive_duration};

use crate::redis::{RedisSettings, RedisUrl};

/// URL of Redis, unless counters are in memory. An alias, since clap reads an `Option` as a flag that may be left out.
type Location = Option<RedisUrl>;

/// Store of the counters.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Store")]
pub struct StoreSettings {
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
    /// PEM files of the client certificate for Redis and of its key.
    #[arg(long, value_name = "CERT,KEY", value_parser = key_pair)]
    redis_client_cert: Option<KeyPair>,
    /// Metrics of CPU, memory, evictions, replication and clock of each Redis server, by `INFO` and `TIME` every 5 to 15 s.
    #[arg(long, value_name = "BOOL", default_value = "true", action = Set, value_parser = boolean)]
    redis_server_metrics: bool,
    /// Maximum number of counters in this process, of the memory store or while Redis fails. Four hits of a sliding window
    /// log, or four permits of a concurrency limit, count as one.
    #[arg(long, value_name = "COUNT", default_value = "1000000", value_parser = count::<usize>)]
    pub max_counters: usize,
}

impl StoreSettings {
    /// Settings of Redis, unless counters are in memory.
    pub fn redis(&self) -> Option<RedisSettings> {
        Some(RedisSettings {
            servers: self.store.clone()?,
            timeout: self.store_timeout,
            key_prefix: self.key_prefix.clone(),
            ca_certificate: self.redis_ca.clone(),
            client_certificate: self.redis_client_cert.clone().map(|pair| (pair.certificate, pair.key)),
            samples_servers: self.redis_server_metrics,
        })
    }
}

/// Shows `memory`, or the URL with `***` in place of the password.
impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.store {
            None => f.write_str("memory"),
            Some(servers) => servers.fmt(f),
        }
    }
}

fn location(text: &str) -> Result<Location, String> {
    match text {
        "memory" => Ok(None),
        url => url.parse().map(Some).map_err(|error| match url.contains("://") {
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
        assert_eq!(location("memory"), Ok(None));
        for url in ["redis://h", "rediss://u:p@h:1/2", "redis+unix:///run/redis.sock", "redis+cluster://a,b"]
        {
            assert!(matches!(location(url), Ok(Some(_))), "{url}");
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
