//! Catalogue of the variables of traces, and of those that the specification of OpenTelemetry defines.

use super::catalogue::{
    Mapping::{DetailOf, Flag, NoEffect, PartOf, Switch},
    ValueType::{Boolean, Decimal, Text},
    Variable,
};

/// Reason for the variables that name a client certificate of the exporter.
const NO_CERTIFICATE: &str = "the exporter presents no client certificate";

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
        Switch("true: disables traces, unless `--otlp-endpoint` is given"),
    ),
    Variable::new("OTEL_EXPORTER_OTLP_CERTIFICATE", "", Text, Flag("otlp-ca")),
    Variable::new(
        "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
        "",
        Text,
        NoEffect("set `OTEL_EXPORTER_OTLP_CERTIFICATE`"),
    ),
    Variable::new("OTEL_SERVICE_NAME", "", Text, Flag("otlp-service-name")),
    Variable::new("TRACING_SERVICE_NAME", "RateLimit", Text, Flag("otlp-service-name")),
    Variable::new("OTEL_RESOURCE_ATTRIBUTES", "", Text, PartOf("otlp-resource-attributes")),
    Variable::new("TRACING_SERVICE_NAMESPACE", "", Text, PartOf("otlp-resource-attributes")),
    Variable::new("TRACING_SERVICE_INSTANCE_ID", "", Text, PartOf("otlp-resource-attributes")),
    Variable::new("TRACING_SAMPLING_RATE", "1", Decimal, Flag("trace-sample-ratio")),
    Variable::new("TRACING_EXPORTER_PROTOCOL", "http", Text, PartOf("otlp-protocol")),
    Variable::new("OTEL_EXPORTER_OTLP_PROTOCOL", "", Text, PartOf("otlp-protocol")),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "", Text, PartOf("otlp-protocol")),
    Variable::new("OTEL_EXPORTER_OTLP_HEADERS", "", Text, PartOf("otlp-headers")),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "", Text, PartOf("otlp-headers")),
    Variable::new("OTEL_EXPORTER_OTLP_INSECURE", "", Text, DetailOf("OTEL_EXPORTER_OTLP_ENDPOINT")),
    Variable::new(
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "",
        Text,
        NoEffect("an export of traces times out after 2 s"),
    ),
    Variable::new("OTEL_EXPORTER_OTLP_COMPRESSION", "none", Text, NoEffect("exports are not compressed")),
    Variable::new("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "", Text, NoEffect(NO_CERTIFICATE)),
    Variable::new("OTEL_EXPORTER_OTLP_CLIENT_KEY", "", Text, NoEffect(NO_CERTIFICATE)),
];
