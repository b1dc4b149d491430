//! Its traces, and those variables of OpenTelemetry that say where they go.

use super::{
    Fate::{Always, NoEffect, Of, Part, Same, Switch},
    Form::{Boolean, Decimal, Text},
    Variable,
};

/// Where traces go; the others that begin like it say how.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Why what names a client's certificate has no effect.
const NO_CERTIFICATE: &str = "no certificate is shown to the collector";

pub(super) const VARIABLES: [Variable; 18] = [
    Variable::new(
        "TRACING_ENABLED",
        "false",
        Boolean,
        Switch(
            "false: no traces, whatever else is said; true: `OTEL_EXPORTER_OTLP_ENDPOINT` is needed, and the name and \
             the sampling rate are those of the reference unless said otherwise; absent: traces where there is an endpoint",
        ),
    ),
    Variable::new(ENDPOINT, "", Text, Same("otlp-endpoint")),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", Text, Same("otlp-endpoint")),
    Variable::new("OTEL_EXPORTER_OTLP_CERTIFICATE", "", Text, Same("otlp-ca")),
    Variable::new("OTEL_SERVICE_NAME", "", Text, Same("otlp-service-name")),
    Variable::new("TRACING_SERVICE_NAME", "RateLimit", Text, Same("otlp-service-name")),
    Variable::new("OTEL_RESOURCE_ATTRIBUTES", "", Text, Part("otlp-resource-attributes")),
    Variable::new("TRACING_SERVICE_NAMESPACE", "", Text, Part("otlp-resource-attributes")),
    Variable::new("TRACING_SERVICE_INSTANCE_ID", "", Text, Part("otlp-resource-attributes")),
    Variable::new("TRACING_SAMPLING_RATE", "1", Decimal, Same("trace-sample-ratio")),
    Variable::new("TRACING_EXPORTER_PROTOCOL", "http", Text, Of("TRACING_ENABLED")),
    Variable::new("OTEL_EXPORTER_OTLP_HEADERS", "", Text, Always("what sends traces sends these headers")),
    Variable::new("OTEL_EXPORTER_OTLP_PROTOCOL", "", Text, Of("TRACING_ENABLED")),
    Variable::new("OTEL_EXPORTER_OTLP_INSECURE", "", Text, Of(ENDPOINT)),
    Variable::new("OTEL_EXPORTER_OTLP_TIMEOUT", "", Text, NoEffect("the collector has 2 s for a message")),
    Variable::new("OTEL_EXPORTER_OTLP_COMPRESSION", "none", Text, NoEffect("traces are not compressed")),
    Variable::new("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "", Text, NoEffect(NO_CERTIFICATE)),
    Variable::new("OTEL_EXPORTER_OTLP_CLIENT_KEY", "", Text, NoEffect(NO_CERTIFICATE)),
];
