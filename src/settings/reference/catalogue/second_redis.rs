//! Its second Redis, for limits of a second.

use super::{
    Fate::{NoEffect, Of},
    Form::{Boolean, Duration, Number, Text},
    Variable,
};

/// The switch, which speaks for them all.
const SWITCH: &str = "REDIS_PERSECOND";

pub(super) const VARIABLES: [Variable; 13] = [
    Variable::new(
        SWITCH,
        "false",
        Boolean,
        NoEffect("one Redis keeps the counters of all limits; REDIS_PERSECOND_* is not read"),
    ),
    Variable::new("REDIS_PERSECOND_SOCKET_TYPE", "unix", Text, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_TYPE", "SINGLE", Text, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", Text, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_POOL_SIZE", "10", Number, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_AUTH", "", Text, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_SENTINEL_AUTH", "", Text, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_TLS", "false", Boolean, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_PIPELINE_WINDOW", "0", Duration, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_PIPELINE_LIMIT", "0", Number, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", Number, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_TIMEOUT", "10s", Duration, Of(SWITCH)),
    Variable::new("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, Of(SWITCH)),
];
