//! Its Redis.

use super::{
    Fate::{Always, NoEffect, Part, Refused, Same},
    Form::{Boolean, Duration, Number, Text},
    Variable,
};

/// Why nothing that shapes its pools of connections has an effect.
const NO_POOL: &str = "each worker has one connection to each Redis, which carries all of its calls";

/// Why nothing that shapes its pipelines has an effect.
const BATCHES: &str = "calls that meet go to Redis together, and none waits for others";

/// Why nothing about its first connection has an effect.
const NO_WAIT: &str = "the start does not wait for Redis, which is tried until it answers";

pub(super) const VARIABLES: [Variable; 26] = [
    Variable::new(
        "BACKEND_TYPE",
        "redis",
        Text,
        Refused {
            unless: "store",
            reason: "expected redis: there is no memcached here; set REDIS_URL, or say --store memory",
        },
    ),
    Variable::new("REDIS_URL", "/var/run/nutcracker/ratelimit.sock", Text, Part("store")),
    Variable::new("REDIS_SOCKET_TYPE", "unix", Text, Part("store")),
    Variable::new("REDIS_TYPE", "SINGLE", Text, Part("store")),
    Variable::new("REDIS_TLS", "false", Boolean, Part("store")),
    Variable::new("REDIS_AUTH", "", Text, Part("store")),
    Variable::new("REDIS_SENTINEL_AUTH", "", Text, Part("store")),
    Variable::new("REDIS_TLS_CACERT", "", Text, Same("redis-ca")),
    Variable::new("REDIS_TLS_CLIENT_CERT", "", Text, Same("redis-client-cert")),
    Variable::new("REDIS_TLS_CLIENT_KEY", "", Text, Same("redis-client-key")),
    Variable::new(
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        "false",
        Boolean,
        Refused {
            unless: "store",
            reason: "not supported: the certificate of Redis has to have the host's name; name the host in \
                     REDIS_URL as the certificate does, set REDIS_TLS_CACERT, and unset this",
        },
    ),
    Variable::new("CACHE_KEY_PREFIX", "", Text, Same("key-prefix")),
    Variable::new("REDIS_POOL_SIZE", "10", Number, NoEffect(NO_POOL)),
    Variable::new("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, NoEffect(NO_POOL)),
    Variable::new("REDIS_POOL_ON_EMPTY_WAIT_DURATION", "", Duration, NoEffect(NO_POOL)),
    Variable::new("REDIS_PIPELINE_WINDOW", "0", Duration, NoEffect(BATCHES)),
    Variable::new("REDIS_PIPELINE_LIMIT", "0", Number, NoEffect(BATCHES)),
    Variable::new(
        "REDIS_CLUSTER_PIPELINE_PARALLELISM",
        "1",
        Number,
        NoEffect("all shards that a call needs are asked at once"),
    ),
    Variable::new(
        "REDIS_TIMEOUT",
        "10s",
        Duration,
        NoEffect("--store-timeout says how long a decision may take, and connecting has a bound of its own"),
    ),
    Variable::new(
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        "false",
        Boolean,
        NoEffect("an outage of Redis makes nothing unhealthy: --on-store-error says how limits are decided"),
    ),
    Variable::new(
        "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
        "false",
        Boolean,
        Always("a server that takes no writes any more is left"),
    ),
    Variable::new("REDIS_STARTUP_INITIAL_INTERVAL", "1s", Duration, NoEffect(NO_WAIT)),
    Variable::new("REDIS_STARTUP_MAX_INTERVAL", "30s", Duration, NoEffect(NO_WAIT)),
    Variable::new("REDIS_STARTUP_MAX_ELAPSED_TIME", "0", Duration, NoEffect(NO_WAIT)),
    Variable::new(
        "EXPIRATION_JITTER_MAX_SECONDS",
        "300",
        Number,
        NoEffect("a key expires when the last counter in it ends"),
    ),
    Variable::new(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        "0",
        Number,
        NoEffect("denials that still stand are always kept in this process, in bounded memory"),
    ),
];
