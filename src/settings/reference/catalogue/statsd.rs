//! Its metrics. `reference/statsd.rs` reads those of StatsD.

use super::{
    Fate::{NoEffect, Part, Same},
    Form::{Boolean, Duration, Number, Text},
    Variable,
};

pub(super) const VARIABLES: [Variable; 13] = [
    Variable::new("USE_STATSD", "true", Boolean, Part("statsd")),
    Variable::new("STATSD_HOST", "localhost", Text, Part("statsd")),
    Variable::new("STATSD_PORT", "8125", Number, Part("statsd")),
    Variable::new("USE_DOG_STATSD", "false", Boolean, Part("statsd")),
    Variable::new("USE_DOG_STATSD_MOGRIFIERS", "", Text, Part("statsd-rewrite")),
    Variable::new("EXTRA_TAGS", "", Text, Same("statsd-tags")),
    Variable::new("STATS_FLUSH_INTERVAL", "10s", Duration, Same("statsd-interval")),
    Variable::new("DISABLE_STATS", "false", Boolean, Part("statsd")),
    Variable::new("USE_PROMETHEUS", "false", Boolean, Same("reference-metrics")),
    Variable::new("PROMETHEUS_ADDR", ":9090", Text, Part("metrics-address")),
    Variable::new("PROMETHEUS_PATH", "/metrics", Text, Part("metrics-path")),
    Variable::new(
        "PROMETHEUS_MAPPER_YAML",
        "",
        Text,
        NoEffect("names and labels are those of its default mapping; relabel where they are scraped"),
    ),
    Variable::new(
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        "false",
        Boolean,
        NoEffect("ratelimit_service_response_time_seconds is in seconds, as it says"),
    ),
];
