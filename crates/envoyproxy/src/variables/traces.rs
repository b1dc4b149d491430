//! Traces: the variables of the specification of OpenTelemetry, and those that the reference adds.

use http::Uri;
use tollgate_flags::Problem;
use tollgate_flags::environment::{EnvironmentFlags, Setting};

use super::Inputs;

/// Switch of traces, which overrides all other variables.
const SWITCH: &str = "TRACING_ENABLED";

/// Port of OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

/// Whether traces are exported.
pub(super) fn are_exported(inputs: Inputs<'_>) -> bool {
    let is_off = inputs.switch(SWITCH) == Some(false);
    inputs.is_given("otlp-endpoint") || !is_off && base_or_url(inputs).is_some()
}

fn is_on(inputs: Inputs<'_>) -> bool {
    inputs.switch(SWITCH) == Some(true)
}

/// The collector of traces.
pub(super) fn endpoint(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    base_or_url(inputs).filter(|_| are_exported(inputs)).map(Ok)
}

/// The endpoint of traces. That of all signals is a base, to which their path is added.
fn base_or_url(inputs: Inputs<'_>) -> Option<String> {
    let is_otlp = |exporter: &str| exporter.trim().eq_ignore_ascii_case("otlp");
    let is_other = |exporters: &str| !exporters.split(',').any(is_otlp);
    let is_disabled = inputs.switch("OTEL_SDK_DISABLED") == Some(true);
    if is_disabled || inputs.get("OTEL_TRACES_EXPORTER").is_some_and(is_other) {
        return None;
    }
    let of_traces = inputs.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").map(ToOwned::to_owned);
    of_traces.or_else(|| {
        let mut endpoint = inputs.get("OTEL_EXPORTER_OTLP_ENDPOINT")?.to_owned();
        let has_path = endpoint.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        if has_path && !endpoint.ends_with('/') {
            endpoint.push('/');
        }
        Some(endpoint)
    })
}

/// Headers for the collector.
pub(super) fn headers(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let of_traces = inputs.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS");
    let headers = of_traces.or(inputs.get("OTEL_EXPORTER_OTLP_HEADERS"))?;
    are_exported(inputs).then(|| Ok(headers.to_owned()))
}

/// The protocol of traces. The variable of the reference counts only if traces are on by its switch.
pub(super) fn protocol(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let of_reference = inputs.get("TRACING_EXPORTER_PROTOCOL").filter(|_| is_on(inputs));
    let of_traces = of_reference.or(inputs.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"));
    let protocol = of_traces.or(inputs.get("OTEL_EXPORTER_OTLP_PROTOCOL"))?;
    are_exported(inputs).then(|| Ok(protocol.to_owned()))
}

/// Resource attributes: those of OpenTelemetry, and those of two variables of the reference.
pub(super) fn resource(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let own = [("TRACING_SERVICE_NAMESPACE", "namespace"), ("TRACING_SERVICE_INSTANCE_ID", "instance.id")];
    let own = own.into_iter().filter_map(|(name, attribute)| {
        // A comma separates attributes.
        let value = inputs.get(name)?.replace('%', "%25").replace(',', "%2C");
        Some(format!("service.{attribute}={value}"))
    });
    let stated = inputs.get("OTEL_RESOURCE_ATTRIBUTES").map(ToOwned::to_owned);
    let all: Vec<String> = stated.into_iter().chain(own).collect();
    (!all.is_empty()).then(|| Ok(all.join(",")))
}

/// Reports a missing endpoint.
pub(super) fn review(inputs: Inputs<'_>, found: &mut EnvironmentFlags) {
    if is_on(inputs) && !are_exported(inputs) {
        found.notices.push(format!("{SWITCH} has no effect: OTEL_EXPORTER_OTLP_ENDPOINT is not set"));
    }
}

/// Adds the reference's defaults if traces are on. Its protocol is HTTP; a collector at the port of gRPC, which would not
/// accept that, is called by gRPC.
pub(super) fn add_defaults(inputs: Inputs<'_>, settings: &mut Vec<Setting>) {
    // The review of the catalogue reports an invalid switch.
    if !is_on(inputs) {
        return;
    }
    let port = base_or_url(inputs).and_then(|url| url.parse::<Uri>().ok()?.port_u16());
    let is_http = are_exported(inputs) && port != Some(GRPC_PORT);
    let defaults = [
        ("trace-sample-ratio", "1", true),
        ("otlp-service-name", "RateLimit", true),
        ("otlp-protocol", "http/protobuf", is_http),
    ];
    for (flag, value, applies) in defaults {
        let is_set = inputs.is_given(flag) || settings.iter().any(|setting| setting.flag == flag);
        if applies && !is_set {
            settings.push(Setting { flag, variable: SWITCH.to_owned(), value: value.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::tests::{environment, flags};

    #[test]
    fn the_protocol_is_http_where_the_reference_has_it_unless_the_port_is_that_of_grpc() {
        let of = |variables: &[(&str, &str)]| {
            let flags = flags(variables);
            flags.iter().find_map(|flag| flag.strip_prefix("otlp-protocol=")).map(ToOwned::to_owned)
        };
        let (http, grpc) = (Some("http/protobuf".to_owned()), Some("grpc".to_owned()));
        let at = |endpoint| ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
        let on = ("TRACING_ENABLED", "true");
        assert_eq!(of(&[on, at("http://collector:4318")]), http);
        assert_eq!(of(&[on, at("https://collector")]), http);
        assert_eq!(of(&[on, at("http://collector:4317")]), None);
        assert_eq!(of(&[at("http://collector:4318")]), None, "the port decides");
        let stated = ("TRACING_EXPORTER_PROTOCOL", "grpc");
        assert_eq!(of(&[on, at("http://collector:4318"), stated]), grpc);
        assert_eq!(of(&[at("http://collector:4318"), ("TRACING_EXPORTER_PROTOCOL", "http")]), None);
        let general = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert_eq!(of(&[at("http://collector:4318"), general]), grpc);
        assert_eq!(of(&[on, at("http://collector:1"), general]), grpc);
    }

    #[test]
    fn a_general_endpoint_is_a_base_and_that_of_traces_is_used_as_it_is() {
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base");
        let at = |endpoint: &str| vec![format!("otlp-endpoint={endpoint}")];
        assert_eq!(flags(&[general]), at("http://c:4318/base/"));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/push");
        assert_eq!((flags(&[own]), flags(&[general, own])), (at("http://t:1/push"), at("http://t:1/push")));
        for exporters in ["otlp", "console, OTLP"] {
            assert_eq!(flags(&[general, ("OTEL_TRACES_EXPORTER", exporters)]), at("http://c:4318/base/"));
        }
        for off in [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")] {
            assert_eq!(flags(&[general, off]), Vec::<String>::new(), "{off:?}");
        }
    }

    #[test]
    fn a_variable_of_traces_overrides_the_general_one() {
        let general = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
        ];
        let own = [
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "t=u"),
        ];
        let expected = |protocol: &str, headers: &str| {
            let endpoint = "otlp-endpoint=http://c:1".to_owned();
            vec![endpoint, format!("otlp-protocol={protocol}"), format!("otlp-headers={headers}")]
        };
        assert_eq!(flags(&general), expected("grpc", "a=b"));
        assert_eq!(flags(&[&general[..], &own].concat()), expected("http/protobuf", "t=u"));
    }

    #[test]
    fn a_switch_without_an_endpoint_is_reported() {
        let noticed = |variables: &[(&str, &str)]| {
            let mut found = EnvironmentFlags::default();
            let environment = environment(variables);
            review(Inputs::new(&environment, &|_| false), &mut found);
            found.notices.len()
        };
        let (on, endpoint) = (("TRACING_ENABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"));
        assert_eq!((noticed(&[on]), noticed(&[on, endpoint]), noticed(&[endpoint])), (1, 0, 0));
    }

    #[test]
    fn resource_attributes_are_one_list() {
        let variables = [
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b"),
            ("TRACING_SERVICE_NAMESPACE", "x,y"),
            ("TRACING_SERVICE_INSTANCE_ID", "50%"),
        ];
        let attributes = "otlp-resource-attributes=a=b,service.namespace=x%2Cy,service.instance.id=50%25";
        assert_eq!(flags(&variables), [attributes]);
        assert_eq!(flags(&[]), Vec::<String>::new());
    }
}
