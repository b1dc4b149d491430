//! Catalogue of the environment variables of envoyproxy/ratelimit, with the treatment of each.

use std::fmt;

use self::{
    Mapping::{Always, DetailOf, Flag, NoEffect, PartOf, Refused, Switch},
    ValueType::{Boolean, Decimal, Duration, Number, Text},
};
use super::trace_variables;
use crate::settings::parsers::{boolean, duration};

/// A variable of envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// Default in envoyproxy/ratelimit; empty if there is no default.
    pub default: &'static str,
    /// Syntax of the value.
    pub value_type: ValueType,
    /// Effect on tollgate.
    pub mapping: Mapping,
}

/// Syntax of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Boolean, in the forms that Go's `strconv.ParseBool` accepts.
    Boolean,
    /// Duration, in the syntax of Go.
    Duration,
    /// Whole number.
    Number,
    /// Decimal number.
    Decimal,
    /// Text. The case of keywords is ignored.
    Text,
}

/// Effect of a variable on tollgate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Value of this flag.
    Flag(&'static str),
    /// Part of the value of this flag, or its value in another syntax.
    PartOf(&'static str),
    /// Switch for other variables.
    Switch(&'static str),
    /// Behaviour that is always on.
    Always(&'static str),
    /// Without effect. A startup warning gives the reason, or the replacement.
    NoEffect(&'static str),
    /// Fails startup for this reason, unless the value is the default or the replacing flag is given.
    Refused {
        /// The replacing flag, without its dashes.
        unless: &'static str,
        /// Reason, and the remedy.
        reason: &'static str,
    },
    /// Detail of another variable, which is reported in its place.
    DetailOf(&'static str),
}

/// Every variable, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().chain(trace_variables::VARIABLES)
}

/// Whether a variable is set to another value than its default in envoyproxy/ratelimit.
pub(super) fn is_changed(name: &str, value: Option<&str>) -> bool {
    let is_default = |value| all().any(|known| known.name == name && known.is_default(value) == Ok(true));
    value.is_some_and(|value| !is_default(value))
}

impl Variable {
    pub(super) const fn new(
        name: &'static str,
        default: &'static str,
        value_type: ValueType,
        mapping: Mapping,
    ) -> Self {
        Self { name, default, value_type, mapping }
    }

    /// The flag that the variable sets, in whole or in part, without its dashes.
    pub const fn flag(&self) -> Option<&'static str> {
        match self.mapping {
            Flag(flag) | PartOf(flag) => Some(flag),
            Switch(_) | Always(_) | NoEffect(_) | Refused { .. } | DetailOf(_) => None,
        }
    }

    /// Whether `value` is the default, in any of its spellings.
    ///
    /// # Errors
    /// The value does not parse.
    pub fn is_default(&self, value: &str) -> Result<bool, String> {
        fn same<T: PartialEq>(
            read: impl Fn(&str) -> Result<T, String>,
            value: &str,
            default: &str,
        ) -> Result<bool, String> {
            let value = read(value)?;
            Ok(read(default).is_ok_and(|default| default == value))
        }
        let number = |text: &str| text.parse::<i64>().map_err(|_| "expected a whole number".to_owned());
        let decimal = |text: &str| text.parse::<f64>().map_err(|_| "expected a number".to_owned());
        match self.value_type {
            Boolean => same(boolean, value, self.default),
            Duration => same(duration, value, self.default),
            Number => same(number, value, self.default),
            Decimal => same(decimal, value, self.default),
            Text => Ok(value.eq_ignore_ascii_case(self.default)),
        }
    }
}

/// Effect in the form of the documentation.
impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "`--{flag}`"),
            Self::PartOf(flag) => write!(f, "part of `--{flag}`"),
            Self::Switch(what) => f.write_str(what),
            Self::Always(what) => write!(f, "always on: {what}"),
            Self::NoEffect(reason) => write!(f, "no effect: {reason}"),
            Self::Refused { unless, reason } => write!(f, "refused unless `--{unless}` is given: {reason}"),
            Self::DetailOf(other) => write!(f, "see `{other}`"),
        }
    }
}

/// Reason for the variables that size a connection pool.
const NO_POOL: &str = "each worker multiplexes its calls over one connection to each Redis server";

/// Reason for the variables that shape pipelines.
const BATCHES: &str = "concurrent calls are pipelined without a wait";

/// Reason for the variables about the first connection.
const NO_WAIT: &str = "startup does not wait for Redis; it reconnects until Redis answers";

/// All variables but those of traces and of OpenTelemetry, in the order of the documentation.
const VARIABLES: [Variable; 110] = [
    // Ports.
    Variable::new("HOST", "0.0.0.0", Text, PartOf("http-address")),
    Variable::new("PORT", "8080", Number, PartOf("http-address")),
    Variable::new("DEBUG_HOST", "0.0.0.0", Text, PartOf("admin-address")),
    Variable::new("DEBUG_PORT", "6070", Number, PartOf("admin-address")),
    Variable::new("GRPC_HOST", "0.0.0.0", Text, PartOf("grpc-address")),
    Variable::new("GRPC_PORT", "8081", Number, PartOf("grpc-address")),
    Variable::new("GRPC_UDS", "", Text, Flag("grpc-unix-socket")),
    Variable::new("GRPC_MAX_CONNECTION_AGE", "24h", Duration, Flag("grpc-max-connection-age")),
    Variable::new("GRPC_MAX_CONNECTION_AGE_GRACE", "1h", Duration, Flag("grpc-max-connection-age-grace")),
    Variable::new(
        "GRPC_SERVER_USE_TLS",
        "false",
        Boolean,
        Switch("enables the four `GRPC_SERVER_TLS_*` and `GRPC_CLIENT_TLS_*` variables"),
    ),
    Variable::new("GRPC_SERVER_TLS_CERT", "", Text, PartOf("grpc-tls-cert")),
    Variable::new("GRPC_SERVER_TLS_KEY", "", Text, PartOf("grpc-tls-key")),
    Variable::new("GRPC_CLIENT_TLS_CACERT", "", Text, PartOf("grpc-tls-client-ca")),
    Variable::new("GRPC_CLIENT_TLS_SAN", "", Text, PartOf("grpc-tls-client-san")),
    // Log.
    Variable::new("LOG_LEVEL", "WARN", Text, Flag("log-level")),
    Variable::new("LOG_FORMAT", "text", Text, Flag("log-format")),
    // Rules.
    Variable::new("RUNTIME_ROOT", "/srv/runtime_data/current", Text, PartOf("config")),
    Variable::new("RUNTIME_SUBDIRECTORY", "", Text, PartOf("config")),
    Variable::new("RUNTIME_APPDIRECTORY", "config", Text, PartOf("config")),
    Variable::new(
        "RUNTIME_IGNOREDOTFILES",
        "false",
        Boolean,
        Always("files whose names begin with a dot are ignored"),
    ),
    Variable::new(
        "RUNTIME_WATCH_ROOT",
        "true",
        Boolean,
        Always("changes of symbolic links, files and directories are all detected"),
    ),
    Variable::new("MERGE_DOMAIN_CONFIG", "false", Boolean, Flag("merge-domains")),
    Variable::new("FORCE_START_WITHOUT_INITIAL_CONFIG", "false", Boolean, Flag("start-without-rules")),
    Variable::new(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        "false",
        Boolean,
        NoEffect("readiness requires loaded rules, with or without domains"),
    ),
    // Rules from a control plane.
    Variable::new("CONFIG_TYPE", "FILE", Text, PartOf("rules")),
    Variable::new("CONFIG_GRPC_XDS_NODE_ID", "default", Text, PartOf("xds-node-id")),
    Variable::new("CONFIG_GRPC_XDS_NODE_METADATA", "", Text, PartOf("xds-node-metadata")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", Text, PartOf("xds-server")),
    Variable::new(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        "3s",
        Duration,
        PartOf("xds-backoff-initial"),
    ),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", Text, PartOf("xds-headers")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", Boolean, PartOf("xds-server")),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", Text, PartOf("xds-client-cert")),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", Text, PartOf("xds-client-key")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", Text, PartOf("xds-ca")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", Text, PartOf("xds-server-name")),
    Variable::new("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", Duration, PartOf("xds-backoff-initial")),
    Variable::new("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", Duration, PartOf("xds-backoff-max")),
    Variable::new("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", Decimal, PartOf("xds-backoff-jitter")),
    Variable::new("XDS_CLIENT_BACKOFF_JITTER", "true", Boolean, PartOf("xds-backoff-jitter")),
    Variable::new("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", Number, PartOf("xds-max-message-bytes")),
    // Redis.
    Variable::new(
        "BACKEND_TYPE",
        "redis",
        Text,
        Refused {
            unless: "store",
            reason: "memcached is not supported; expected redis (with REDIS_URL), or --store memory",
        },
    ),
    Variable::new("REDIS_URL", "/var/run/nutcracker/ratelimit.sock", Text, PartOf("store")),
    Variable::new("REDIS_SOCKET_TYPE", "unix", Text, PartOf("store")),
    Variable::new("REDIS_TYPE", "SINGLE", Text, PartOf("store")),
    Variable::new("REDIS_TLS", "false", Boolean, PartOf("store")),
    Variable::new("REDIS_AUTH", "", Text, PartOf("store")),
    Variable::new("REDIS_SENTINEL_AUTH", "", Text, PartOf("store")),
    Variable::new("REDIS_TLS_CACERT", "", Text, Flag("redis-ca")),
    Variable::new("REDIS_TLS_CLIENT_CERT", "", Text, Flag("redis-client-cert")),
    Variable::new("REDIS_TLS_CLIENT_KEY", "", Text, Flag("redis-client-key")),
    Variable::new(
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        "false",
        Boolean,
        Refused {
            unless: "store",
            reason: "not supported: the certificate of Redis must be valid for its host name; use a host of the \
                     certificate in REDIS_URL, set REDIS_TLS_CACERT, and unset this",
        },
    ),
    Variable::new("CACHE_KEY_PREFIX", "", Text, Flag("key-prefix")),
    Variable::new("REDIS_POOL_SIZE", "10", Number, NoEffect(NO_POOL)),
    Variable::new("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, NoEffect(NO_POOL)),
    Variable::new("REDIS_POOL_ON_EMPTY_WAIT_DURATION", "", Duration, NoEffect(NO_POOL)),
    Variable::new("REDIS_PIPELINE_WINDOW", "0", Duration, NoEffect(BATCHES)),
    Variable::new("REDIS_PIPELINE_LIMIT", "0", Number, NoEffect(BATCHES)),
    Variable::new(
        "REDIS_CLUSTER_PIPELINE_PARALLELISM",
        "1",
        Number,
        NoEffect("the shards of a request are called concurrently"),
    ),
    Variable::new(
        "REDIS_TIMEOUT",
        "10s",
        Duration,
        NoEffect("--store-timeout bounds a decision; connecting has a timeout of its own"),
    ),
    Variable::new(
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        "false",
        Boolean,
        NoEffect("an outage of Redis does not fail health checks; --on-store-error decides limits meanwhile"),
    ),
    Variable::new(
        "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
        "false",
        Boolean,
        Always("a server that became read-only is disconnected"),
    ),
    Variable::new("REDIS_STARTUP_INITIAL_INTERVAL", "1s", Duration, NoEffect(NO_WAIT)),
    Variable::new("REDIS_STARTUP_MAX_INTERVAL", "30s", Duration, NoEffect(NO_WAIT)),
    Variable::new("REDIS_STARTUP_MAX_ELAPSED_TIME", "0", Duration, NoEffect(NO_WAIT)),
    Variable::new(
        "EXPIRATION_JITTER_MAX_SECONDS",
        "300",
        Number,
        NoEffect("a key expires with the last counter in it"),
    ),
    Variable::new(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        "0",
        Number,
        NoEffect("denials are always cached in this process, in bounded memory"),
    ),
    // Second Redis, for limits per second.
    Variable::new(
        "REDIS_PERSECOND",
        "false",
        Boolean,
        NoEffect("one Redis holds the counters of all limits; REDIS_PERSECOND_* is not read"),
    ),
    Variable::new("REDIS_PERSECOND_SOCKET_TYPE", "unix", Text, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_TYPE", "SINGLE", Text, DetailOf("REDIS_PERSECOND")),
    Variable::new(
        "REDIS_PERSECOND_URL",
        "/var/run/nutcracker/ratelimitpersecond.sock",
        Text,
        DetailOf("REDIS_PERSECOND"),
    ),
    Variable::new("REDIS_PERSECOND_POOL_SIZE", "10", Number, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_AUTH", "", Text, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_SENTINEL_AUTH", "", Text, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_TLS", "false", Boolean, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_PIPELINE_WINDOW", "0", Duration, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_PIPELINE_LIMIT", "0", Number, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", Number, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_TIMEOUT", "10s", Duration, DetailOf("REDIS_PERSECOND")),
    Variable::new("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, DetailOf("REDIS_PERSECOND")),
    // memcached.
    Variable::new("MEMCACHE_HOST_PORT", "", Text, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_MAX_IDLE_CONNS", "2", Number, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_SRV", "", Text, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_SRV_REFRESH", "0", Duration, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_TLS", "false", Boolean, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_TLS_CLIENT_CERT", "", Text, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_TLS_CLIENT_KEY", "", Text, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_TLS_CACERT", "", Text, DetailOf("BACKEND_TYPE")),
    Variable::new("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", Boolean, DetailOf("BACKEND_TYPE")),
    // Responses.
    Variable::new("LIMIT_RESPONSE_HEADERS_ENABLED", "false", Boolean, PartOf("response-headers")),
    Variable::new("LIMIT_LIMIT_HEADER", "RateLimit-Limit", Text, Flag("limit-header")),
    Variable::new("LIMIT_REMAINING_HEADER", "RateLimit-Remaining", Text, Flag("remaining-header")),
    Variable::new("LIMIT_RESET_HEADER", "RateLimit-Reset", Text, Flag("reset-header")),
    Variable::new("RESPONSE_DYNAMIC_METADATA", "false", Boolean, Flag("dynamic-metadata")),
    Variable::new("SHADOW_MODE", "false", Boolean, Flag("shadow-mode")),
    Variable::new("QUOTA_MODE", "false", Boolean, Flag("quota-mode")),
    Variable::new("NEAR_LIMIT_RATIO", "0.8", Decimal, Flag("near-limit-ratio")),
    Variable::new("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", Boolean, Flag("stop-when-denied")),
    // Metrics.
    Variable::new("USE_STATSD", "true", Boolean, PartOf("statsd")),
    Variable::new("STATSD_HOST", "localhost", Text, PartOf("statsd")),
    Variable::new("STATSD_PORT", "8125", Number, PartOf("statsd")),
    Variable::new("USE_DOG_STATSD", "false", Boolean, PartOf("statsd")),
    Variable::new("USE_DOG_STATSD_MOGRIFIERS", "", Text, PartOf("statsd-rewrite")),
    Variable::new("EXTRA_TAGS", "", Text, Flag("statsd-tags")),
    Variable::new("STATS_FLUSH_INTERVAL", "10s", Duration, Flag("statsd-interval")),
    Variable::new("DISABLE_STATS", "false", Boolean, PartOf("statsd")),
    Variable::new("USE_PROMETHEUS", "false", Boolean, Flag("reference-metrics")),
    Variable::new("PROMETHEUS_ADDR", ":9090", Text, PartOf("metrics-address")),
    Variable::new("PROMETHEUS_PATH", "/metrics", Text, PartOf("metrics-path")),
    Variable::new(
        "PROMETHEUS_MAPPER_YAML",
        "",
        Text,
        NoEffect("names and labels follow the default mapping; relabel when scraping"),
    ),
    Variable::new(
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        "false",
        Boolean,
        NoEffect("ratelimit_service_response_time_seconds is in seconds"),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_variable_is_listed_once_and_its_default_is_recognised() {
        let mut seen = BTreeSet::new();
        for variable in all() {
            assert!(seen.insert(variable.name), "{} twice", variable.name);
            if !variable.default.is_empty() {
                assert_eq!(variable.is_default(variable.default), Ok(true), "{}", variable.name);
            }
            if let DetailOf(other) = variable.mapping {
                assert!(all().any(|known| known.name == other), "{other}");
            }
        }
    }

    #[test]
    fn a_default_is_recognised_in_every_spelling() {
        let of = |name, value| all().find(|known| known.name == name).expect("known").is_default(value);
        assert_eq!(of("REDIS_TIMEOUT", "10000ms"), Ok(true));
        assert_eq!(of("REDIS_PERSECOND", "F"), Ok(true));
        assert_eq!(of("REDIS_POOL_SIZE", "010"), Ok(true));
        assert_eq!(of("REDIS_POOL_ON_EMPTY_BEHAVIOR", "wait"), Ok(true));
        assert_eq!(of("REDIS_TIMEOUT", "1s"), Ok(false));
        assert!(of("REDIS_TIMEOUT", "10").is_err_and(|error| error.contains("duration")));
        assert!(of("REDIS_POOL_SIZE", "ten").is_err_and(|error| error.contains("number")));
    }
}
