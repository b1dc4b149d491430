//! Catalogue of the variables of traces, and of those that the specification of OpenTelemetry defines.

use super::catalogue::{
    Mapping::{DetailOf, Flag, NoEffect, PartOf, Switch},
    ValueType::{Boolean, Decimal, Text},
    Variable,
};

/// Reason for the variables that name a client certificate of the exporter.
const NO_CERTIFICATE: &str = "the exporter presents no client certificate";

/// Reason for the variables that name the CAs of one collector.
const ONE_CA_FILE: &str = "one file has the CAs of all collectors; set `OTEL_EXPORTER_OTLP_CERTIFICATE`";

/// All of these variables, in the order of the documentation.
pub(super) const VARIABLES: &[Variable] = &[
    Variable::new(
        "TRACING_ENABLED",
        "false",
        Boolean,
        Switch(
            "false: disables traces; true: requires `OTEL_EXPORTER_OTLP_ENDPOINT`, with the service name, protocol and \
             sampling rate of envoyproxy/ratelimit by default; unset: traces if an endpoint is set",
        ),
    ),
    Variable::new("OTEL_EXPORTER_OTLP_ENDPOINT", "", Text, PartOf("otlp-endpoint")),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", Text, PartOf("otlp-endpoint")),
    Variable::new("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "", Text, PartOf("otlp-metrics-endpoint")),
    Variable::new(
        "OTEL_METRICS_EXPORTER",
        "",
        Text,
        Switch(
            "`otlp`: exports metrics to `OTEL_EXPORTER_OTLP_ENDPOINT` too; any other value disables their export; unset: \
             metrics if `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` is set",
        ),
    ),
    Variable::new(
        "OTEL_TRACES_EXPORTER",
        "otlp",
        Text,
        Switch("any other value than `otlp` disables traces"),
    ),
    Variable::new(
        "OTEL_SDK_DISABLED",
        "false",
        Text,
        Switch("true: disables traces and the export of metrics, unless their flags are given"),
    ),
    Variable::new("OTEL_EXPORTER_OTLP_CERTIFICATE", "", Text, Flag("otlp-ca")),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "", Text, NoEffect(ONE_CA_FILE)),
    Variable::new("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "", Text, NoEffect(ONE_CA_FILE)),
    Variable::new("OTEL_SERVICE_NAME", "", Text, Flag("otlp-service-name")),
    Variable::new("TRACING_SERVICE_NAME", "RateLimit", Text, Flag("otlp-service-name")),
    Variable::new("OTEL_RESOURCE_ATTRIBUTES", "", Text, PartOf("otlp-resource-attributes")),
    Variable::new("TRACING_SERVICE_NAMESPACE", "", Text, PartOf("otlp-resource-attributes")),
    Variable::new("TRACING_SERVICE_INSTANCE_ID", "", Text, PartOf("otlp-resource-attributes")),
    Variable::new("TRACING_SAMPLING_RATE", "1", Decimal, Flag("trace-sample-ratio")),
    Variable::new("TRACING_EXPORTER_PROTOCOL", "http", Text, PartOf("otlp-protocol")),
    Variable::new("OTEL_EXPORTER_OTLP_PROTOCOL", "", Text, PartOf("otlp-protocol")),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "", Text, PartOf("otlp-protocol")),
    Variable::new("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "", Text, PartOf("otlp-metrics-protocol")),
    Variable::new("OTEL_EXPORTER_OTLP_HEADERS", "", Text, PartOf("otlp-headers")),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "", Text, PartOf("otlp-headers")),
    Variable::new("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "", Text, PartOf("otlp-metrics-headers")),
    Variable::new("OTEL_METRIC_EXPORT_INTERVAL", "60000", Text, PartOf("otlp-metrics-interval")),
    Variable::new(
        "OTEL_METRIC_EXPORT_TIMEOUT",
        "30000",
        Text,
        NoEffect("an export of metrics times out after 10 s"),
    ),
    Variable::new(
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        "cumulative",
        Text,
        NoEffect("counts are cumulative"),
    ),
    Variable::new("OTEL_EXPORTER_OTLP_INSECURE", "", Text, DetailOf("OTEL_EXPORTER_OTLP_ENDPOINT")),
    Variable::new(
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "",
        Text,
        NoEffect("an export of traces times out after 2 s, and one of metrics after 10 s"),
    ),
    Variable::new("OTEL_EXPORTER_OTLP_COMPRESSION", "none", Text, NoEffect("exports are not compressed")),
    Variable::new("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "", Text, NoEffect(NO_CERTIFICATE)),
    Variable::new("OTEL_EXPORTER_OTLP_CLIENT_KEY", "", Text, NoEffect(NO_CERTIFICATE)),
];
