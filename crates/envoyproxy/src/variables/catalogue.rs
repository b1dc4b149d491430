//! Catalogue of the environment variables of envoyproxy/ratelimit, with the effect of each.

use super::variable::Mapping::{self, Always, DetailOf, Flag, NoEffect, Refused, Switch};
use super::variable::ValueType::{self, Boolean, Decimal, Duration, Number, Text};
use super::variable::{Variable, part};
use super::{exports, ports, redis, traces, xds};

/// Every variable, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter()
}

/// Reason for the variables that size a connection pool.
const NO_POOL: &str = "each worker multiplexes its calls over one connection to each Redis server";

/// Reason for the variables that shape pipelines.
const BATCHES: &str = "concurrent calls are pipelined without a wait";

/// Reason for the variables that name a client certificate of the exporter.
const NO_CERTIFICATE: &str = "the exporter presents no client certificate";

/// Reason for the variables about the first connection.
const NO_WAIT: &str = "startup does not wait for Redis; it reconnects until Redis answers";

/// The variables whose details have no effect.
const PER_SECOND: &str = "REDIS_PERSECOND";
const BACKEND: &str = "BACKEND_TYPE";

// Reasons and effects of single variables, in their order.
const GRPC_TLS: &str = "enables the four `GRPC_SERVER_TLS_*` and `GRPC_CLIENT_TLS_*` variables";
const ALL_CHANGES: &str = "changes of symbolic links, files and directories are all detected";
const READY_WITH_RULES: &str = "readiness requires loaded rules, with or without domains";
const NO_MEMCACHED: &str = "memcached is not supported; expected redis (with REDIS_URL), or --store memory";
const HOST_VERIFIED: &str = "not supported: the certificate of Redis must be valid for its host name; use \
                             a host of the certificate in REDIS_URL, set REDIS_TLS_CACERT, and unset this";
const CONCURRENT_SHARDS: &str = "the shards of a request are called concurrently";
const STORE_TIMEOUT: &str = "--store-timeout bounds a decision; connecting has a timeout of its own";
const HEALTHY_IN_OUTAGE: &str = "an outage of Redis does not fail health checks; --on-store-error decides \
                                 limits meanwhile";
const READ_ONLY: &str = "a server that became read-only is disconnected";
const EXPIRY: &str = "a key expires with the last counter in it";
const CACHED_DENIALS: &str = "denials are always cached in this process, in bounded memory";
const ONE_REDIS: &str = "one Redis holds the counters of all limits; REDIS_PERSECOND_* is not read";
const DEFAULT_MAPPING: &str = "names and labels follow the default mapping; relabel when scraping";
const SECONDS: &str = "ratelimit_service_response_time_seconds is in seconds";
const TRACES: &str = "false: disables traces; true: requires `OTEL_EXPORTER_OTLP_ENDPOINT`, with the \
                      service name, protocol and sampling rate of envoyproxy/ratelimit by default; unset: \
                      traces if an endpoint is set";
const SDK_DISABLED: &str = "true: disables traces, unless `--otlp-endpoint` is given";

const fn row(name: &'static str, default: &'static str, value_type: ValueType, mapping: Mapping) -> Variable {
    Variable { name, default, value_type, mapping }
}

/// All variables, in the order of the documentation.
static VARIABLES: [Variable; 133] = [
    // Ports.
    row("HOST", "0.0.0.0", Text, part("http-address", ports::http)),
    row("PORT", "8080", Number, part("http-address", ports::http)),
    row("DEBUG_HOST", "0.0.0.0", Text, part("admin-address", ports::admin)),
    row("DEBUG_PORT", "6070", Number, part("admin-address", ports::admin)),
    row("GRPC_HOST", "0.0.0.0", Text, part("grpc-address", ports::grpc)),
    row("GRPC_PORT", "8081", Number, part("grpc-address", ports::grpc)),
    row("GRPC_UDS", "", Text, part("grpc-address", ports::grpc)),
    row("GRPC_MAX_CONNECTION_AGE", "24h", Duration, Flag("grpc-max-connection-age")),
    row("GRPC_MAX_CONNECTION_AGE_GRACE", "1h", Duration, Flag("grpc-max-connection-age-grace")),
    row("GRPC_SERVER_USE_TLS", "false", Boolean, Switch(GRPC_TLS)),
    row("GRPC_SERVER_TLS_CERT", "", Text, part("grpc-tls", ports::tls)),
    row("GRPC_SERVER_TLS_KEY", "", Text, part("grpc-tls", ports::tls)),
    row("GRPC_CLIENT_TLS_CACERT", "", Text, part("grpc-tls-client-ca", ports::with_tls)),
    row("GRPC_CLIENT_TLS_SAN", "", Text, part("grpc-tls-client-san", ports::with_tls)),
    // Log.
    row("LOG_LEVEL", "WARN", Text, Flag("log-level")),
    row("LOG_FORMAT", "text", Text, Flag("log-format")),
    // Rules.
    row("RUNTIME_ROOT", "/srv/runtime_data/current", Text, part("config", super::directory)),
    row("RUNTIME_SUBDIRECTORY", "", Text, part("config", super::directory)),
    row("RUNTIME_APPDIRECTORY", "config", Text, part("config", super::directory)),
    row("RUNTIME_IGNOREDOTFILES", "false", Boolean, Always("files whose names begin with a dot are ignored")),
    row("RUNTIME_WATCH_ROOT", "true", Boolean, Always(ALL_CHANGES)),
    row("MERGE_DOMAIN_CONFIG", "false", Boolean, Flag("merge-domains")),
    row("FORCE_START_WITHOUT_INITIAL_CONFIG", "false", Boolean, Flag("start-without-rules")),
    row("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", Boolean, NoEffect(READY_WITH_RULES)),
    // Rules from a control plane.
    row("CONFIG_TYPE", "FILE", Text, part("rules", xds::source)),
    row("CONFIG_GRPC_XDS_NODE_ID", "default", Text, part("xds-node-id", xds::value)),
    row("CONFIG_GRPC_XDS_NODE_METADATA", "", Text, part("xds-node-metadata", xds::value)),
    row("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", Text, part("xds-server", xds::server)),
    row("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", Duration, part("xds-backoff", xds::backoff)),
    row("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", Text, part("xds-headers", xds::headers)),
    row("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", Boolean, part("xds-server", xds::server)),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", Text, part("xds-client-cert", xds::client_certificate)),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", Text, part("xds-client-cert", xds::client_certificate)),
    row("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", Text, part("xds-ca", xds::with_tls)),
    row("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", Text, part("xds-server-name", xds::with_tls)),
    row("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", Duration, part("xds-backoff", xds::backoff)),
    row("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", Duration, part("xds-backoff", xds::backoff)),
    row("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", Decimal, part("xds-backoff", xds::backoff)),
    row("XDS_CLIENT_BACKOFF_JITTER", "true", Boolean, part("xds-backoff", xds::backoff)),
    row("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", Number, part("xds-max-message-bytes", xds::value)),
    // Redis.
    row("BACKEND_TYPE", "redis", Text, Refused { unless: "store", reason: NO_MEMCACHED }),
    row("REDIS_URL", "/var/run/nutcracker/ratelimit.sock", Text, part("store", redis::url)),
    row("REDIS_SOCKET_TYPE", "unix", Text, part("store", redis::url)),
    row("REDIS_TYPE", "SINGLE", Text, part("store", redis::url)),
    row("REDIS_TLS", "false", Boolean, part("store", redis::url)),
    row("REDIS_AUTH", "", Text, part("store", redis::url)),
    row("REDIS_SENTINEL_AUTH", "", Text, part("store", redis::url)),
    row("REDIS_TLS_CACERT", "", Text, Flag("redis-ca")),
    row("REDIS_TLS_CLIENT_CERT", "", Text, part("redis-client-cert", redis::client_certificate)),
    row("REDIS_TLS_CLIENT_KEY", "", Text, part("redis-client-cert", redis::client_certificate)),
    row(
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        "false",
        Boolean,
        Refused { unless: "store", reason: HOST_VERIFIED },
    ),
    row("CACHE_KEY_PREFIX", "", Text, Flag("key-prefix")),
    row("REDIS_POOL_SIZE", "10", Number, NoEffect(NO_POOL)),
    row("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, NoEffect(NO_POOL)),
    row("REDIS_POOL_ON_EMPTY_WAIT_DURATION", "", Duration, NoEffect(NO_POOL)),
    row("REDIS_PIPELINE_WINDOW", "0", Duration, NoEffect(BATCHES)),
    row("REDIS_PIPELINE_LIMIT", "0", Number, NoEffect(BATCHES)),
    row("REDIS_CLUSTER_PIPELINE_PARALLELISM", "1", Number, NoEffect(CONCURRENT_SHARDS)),
    row("REDIS_TIMEOUT", "10s", Duration, NoEffect(STORE_TIMEOUT)),
    row("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", Boolean, NoEffect(HEALTHY_IN_OUTAGE)),
    row("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "false", Boolean, Always(READ_ONLY)),
    row("REDIS_STARTUP_INITIAL_INTERVAL", "1s", Duration, NoEffect(NO_WAIT)),
    row("REDIS_STARTUP_MAX_INTERVAL", "30s", Duration, NoEffect(NO_WAIT)),
    row("REDIS_STARTUP_MAX_ELAPSED_TIME", "0", Duration, NoEffect(NO_WAIT)),
    row("EXPIRATION_JITTER_MAX_SECONDS", "300", Number, NoEffect(EXPIRY)),
    row("LOCAL_CACHE_SIZE_IN_BYTES", "0", Number, NoEffect(CACHED_DENIALS)),
    // Second Redis, for limits per second.
    row("REDIS_PERSECOND", "false", Boolean, NoEffect(ONE_REDIS)),
    row("REDIS_PERSECOND_SOCKET_TYPE", "unix", Text, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_TYPE", "SINGLE", Text, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", Text, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_POOL_SIZE", "10", Number, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_AUTH", "", Text, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_SENTINEL_AUTH", "", Text, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_TLS", "false", Boolean, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_PIPELINE_WINDOW", "0", Duration, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_PIPELINE_LIMIT", "0", Number, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", Number, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_TIMEOUT", "10s", Duration, DetailOf(PER_SECOND)),
    row("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, DetailOf(PER_SECOND)),
    // memcached.
    row("MEMCACHE_HOST_PORT", "", Text, DetailOf(BACKEND)),
    row("MEMCACHE_MAX_IDLE_CONNS", "2", Number, DetailOf(BACKEND)),
    row("MEMCACHE_SRV", "", Text, DetailOf(BACKEND)),
    row("MEMCACHE_SRV_REFRESH", "0", Duration, DetailOf(BACKEND)),
    row("MEMCACHE_TLS", "false", Boolean, DetailOf(BACKEND)),
    row("MEMCACHE_TLS_CLIENT_CERT", "", Text, DetailOf(BACKEND)),
    row("MEMCACHE_TLS_CLIENT_KEY", "", Text, DetailOf(BACKEND)),
    row("MEMCACHE_TLS_CACERT", "", Text, DetailOf(BACKEND)),
    row("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", Boolean, DetailOf(BACKEND)),
    // Responses.
    row("LIMIT_RESPONSE_HEADERS_ENABLED", "false", Boolean, part("response-headers", super::header_style)),
    row("LIMIT_LIMIT_HEADER", "RateLimit-Limit", Text, part("header-names", super::header_names)),
    row("LIMIT_REMAINING_HEADER", "RateLimit-Remaining", Text, part("header-names", super::header_names)),
    row("LIMIT_RESET_HEADER", "RateLimit-Reset", Text, part("header-names", super::header_names)),
    row("RESPONSE_DYNAMIC_METADATA", "false", Boolean, Flag("dynamic-metadata")),
    row("SHADOW_MODE", "false", Boolean, Flag("shadow-mode")),
    row("QUOTA_MODE", "false", Boolean, Flag("quota-mode")),
    row("NEAR_LIMIT_RATIO", "0.8", Decimal, Flag("near-limit-ratio")),
    row("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", Boolean, Flag("stop-when-denied")),
    // Metrics.
    row("USE_STATSD", "true", Boolean, part("statsd", exports::statsd)),
    row("STATSD_HOST", "localhost", Text, part("statsd", exports::statsd)),
    row("STATSD_PORT", "8125", Number, part("statsd", exports::statsd)),
    row("USE_DOG_STATSD", "false", Boolean, part("statsd", exports::statsd)),
    row("USE_DOG_STATSD_MOGRIFIERS", "", Text, part("statsd-rewrite", |_, _| None)),
    row("EXTRA_TAGS", "", Text, Flag("statsd-tags")),
    row("STATS_FLUSH_INTERVAL", "10s", Duration, Flag("statsd-interval")),
    row("DISABLE_STATS", "false", Boolean, part("statsd", exports::statsd)),
    row("USE_PROMETHEUS", "false", Boolean, Flag("reference-metrics")),
    row("PROMETHEUS_ADDR", ":9090", Text, part("metrics-address", exports::metrics_address)),
    row("PROMETHEUS_PATH", "/metrics", Text, part("metrics-address", exports::metrics_address)),
    row("PROMETHEUS_MAPPER_YAML", "", Text, NoEffect(DEFAULT_MAPPING)),
    row("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", Boolean, NoEffect(SECONDS)),
    // Traces, and the variables that the specification of OpenTelemetry defines.
    row("TRACING_ENABLED", "false", Boolean, Switch(TRACES)),
    row("OTEL_EXPORTER_OTLP_ENDPOINT", "", Text, part("otlp-endpoint", traces::endpoint)),
    row("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", Text, part("otlp-endpoint", traces::endpoint)),
    row("OTEL_TRACES_EXPORTER", "otlp", Text, Switch("any other value than `otlp` disables traces")),
    row("OTEL_SDK_DISABLED", "false", Text, Switch(SDK_DISABLED)),
    row("OTEL_EXPORTER_OTLP_CERTIFICATE", "", Text, Flag("otlp-ca")),
    row("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "", Text, NoEffect("set `OTEL_EXPORTER_OTLP_CERTIFICATE`")),
    row("OTEL_SERVICE_NAME", "", Text, Flag("otlp-service-name")),
    row("TRACING_SERVICE_NAME", "RateLimit", Text, Flag("otlp-service-name")),
    row("OTEL_RESOURCE_ATTRIBUTES", "", Text, part("otlp-resource-attributes", traces::resource)),
    row("TRACING_SERVICE_NAMESPACE", "", Text, part("otlp-resource-attributes", traces::resource)),
    row("TRACING_SERVICE_INSTANCE_ID", "", Text, part("otlp-resource-attributes", traces::resource)),
    row("TRACING_SAMPLING_RATE", "1", Decimal, Flag("trace-sample-ratio")),
    row("TRACING_EXPORTER_PROTOCOL", "http", Text, part("otlp-protocol", traces::protocol)),
    row("OTEL_EXPORTER_OTLP_PROTOCOL", "", Text, part("otlp-protocol", traces::protocol)),
    row("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "", Text, part("otlp-protocol", traces::protocol)),
    row("OTEL_EXPORTER_OTLP_HEADERS", "", Text, part("otlp-headers", traces::headers)),
    row("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "", Text, part("otlp-headers", traces::headers)),
    row("OTEL_EXPORTER_OTLP_INSECURE", "", Text, DetailOf("OTEL_EXPORTER_OTLP_ENDPOINT")),
    row("OTEL_EXPORTER_OTLP_TIMEOUT", "", Text, NoEffect("an export of traces times out after 2 s")),
    row("OTEL_EXPORTER_OTLP_COMPRESSION", "none", Text, NoEffect("exports are not compressed")),
    row("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "", Text, NoEffect(NO_CERTIFICATE)),
    row("OTEL_EXPORTER_OTLP_CLIENT_KEY", "", Text, NoEffect(NO_CERTIFICATE)),
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
