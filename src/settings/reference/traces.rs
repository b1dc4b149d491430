//! Traces: the variables of the specification of OpenTelemetry, and those that the reference adds.

use http::Uri;

use crate::settings::{
    environment::{Environment, EnvironmentFlags, Setting},
    parsers::boolean,
};

/// Switch of traces, which overrides all other variables.
const SWITCH: &str = "TRACING_ENABLED";

/// Port of OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

/// Flags with the defaults of the reference while traces are on.
const DEFAULTS: [(&str, &str); 2] = [("trace-sample-ratio", "1"), ("otlp-service-name", "RateLimit")];

/// A variable that is set, with its value as the flag has it.
type Found = (&'static str, String);

/// Whether traces are exported.
pub(super) fn are_exported(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    let is_off = environment.get(SWITCH).map(boolean) == Some(Ok(false));
    given("otlp-endpoint") || !is_off && endpoint(environment).is_some()
}

/// The flags that the variables of OpenTelemetry set.
pub(super) fn settings(environment: &Environment, given: impl Fn(&str) -> bool) -> Vec<Setting> {
    if !are_exported(environment, &given) {
        return Vec::new();
    }
    let headers = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
    let found = [
        ("otlp-endpoint", endpoint(environment)),
        ("otlp-protocol", protocol(environment)),
        ("otlp-headers", first(environment, &headers)),
    ];
    let set = found.into_iter().filter(|(flag, _)| !given(flag));
    set.filter_map(|(flag, found)| {
        let (variable, value) = found?;
        Some(Setting { flag, variable: variable.to_owned(), value })
    })
    .collect()
}

/// The endpoint of traces. That of all signals is a base, to which their path is added.
fn endpoint(environment: &Environment) -> Option<Found> {
    let is_disabled = environment.get("OTEL_SDK_DISABLED").map(boolean) == Some(Ok(true));
    let is_otlp = |exporter: &str| exporter.trim().eq_ignore_ascii_case("otlp");
    let is_other = |exporters: &str| !exporters.split(',').any(is_otlp);
    if is_disabled || environment.get("OTEL_TRACES_EXPORTER").is_some_and(is_other) {
        return None;
    }
    first(environment, &["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]).or_else(|| {
        let (name, mut endpoint) = first(environment, &["OTEL_EXPORTER_OTLP_ENDPOINT"])?;
        let has_path = endpoint.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        if has_path && !endpoint.ends_with('/') {
            endpoint.push('/');
        }
        Some((name, endpoint))
    })
}

/// The first of these variables that is set.
fn first(environment: &Environment, names: &[&'static str]) -> Option<Found> {
    names.iter().find_map(|name| Some((*name, environment.get(name)?.to_owned())))
}

/// Reports a missing endpoint.
pub(super) fn review(environment: &Environment, found: &mut EnvironmentFlags, given: impl Fn(&str) -> bool) {
    if is_on(environment) && !are_exported(environment, given) {
        found.notices.push(format!("{SWITCH} has no effect: OTEL_EXPORTER_OTLP_ENDPOINT is not set"));
    }
}

fn is_on(environment: &Environment) -> bool {
    environment.get(SWITCH).map(boolean) == Some(Ok(true))
}

/// The protocol of traces, with its variable. The reference's default is HTTP; a collector at the port of gRPC, which would not
/// accept that, is called by gRPC.
fn protocol(environment: &Environment) -> Option<Found> {
    const STATED: [&str; 3] =
        ["TRACING_EXPORTER_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    let [_, general @ ..] = STATED;
    if !is_on(environment) {
        return first(environment, &general);
    }
    let port = |(_, endpoint): Found| endpoint.parse::<Uri>().ok()?.port_u16();
    let is_grpc = endpoint(environment).and_then(port) == Some(GRPC_PORT);
    let default = || (!is_grpc).then(|| (SWITCH, "http/protobuf".to_owned()));
    first(environment, &STATED).or_else(default)
}

/// Adds the reference's defaults if traces are on.
pub(super) fn adjust(environment: &Environment, settings: &mut Vec<Setting>, given: impl Fn(&str) -> bool) {
    // The catalogue review reports an invalid switch.
    if !is_on(environment) {
        return;
    }
    for (flag, value) in DEFAULTS {
        if !given(flag) && settings.iter().all(|setting| setting.flag != flag) {
            settings.push(Setting { flag, variable: SWITCH.to_owned(), value: value.to_owned() });
        }
    }
}

/// Resource attributes: those of OpenTelemetry, and those of two variables of the reference.
pub(super) fn resource(environment: &Environment) -> Option<String> {
    let all = environment.get("OTEL_RESOURCE_ATTRIBUTES").map(str::to_owned);
    let own = [("TRACING_SERVICE_NAMESPACE", "namespace"), ("TRACING_SERVICE_INSTANCE_ID", "instance.id")]
        .into_iter()
        .filter_map(|(name, attribute)| {
            // A comma separates attributes.
            let value = environment.get(name)?.replace('%', "%25").replace(',', "%2C");
            Some(format!("service.{attribute}={value}"))
        });
    let all: Vec<String> = all.into_iter().chain(own).collect();
    (!all.is_empty()).then(|| all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::new(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    #[test]
    fn the_protocol_is_http_where_the_reference_has_it_unless_the_port_is_that_of_grpc() {
        let of = |variables: &[(&str, &str)]| protocol(&environment(variables)).map(|(_, protocol)| protocol);
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

    fn flags(variables: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let settings = settings(&environment(variables), |_| false);
        settings.into_iter().map(|setting| (setting.flag, setting.value)).collect()
    }

    #[test]
    fn a_general_endpoint_is_a_base_and_that_of_traces_is_used_as_it_is() {
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base");
        let at = |endpoint: &str| vec![("otlp-endpoint", endpoint.to_owned())];
        assert_eq!(flags(&[general]), at("http://c:4318/base/"));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/push");
        assert_eq!((flags(&[own]), flags(&[general, own])), (at("http://t:1/push"), at("http://t:1/push")));
        for exporters in ["otlp", "console, OTLP"] {
            assert_eq!(flags(&[general, ("OTEL_TRACES_EXPORTER", exporters)]), at("http://c:4318/base/"));
        }
        for off in [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")] {
            assert_eq!(flags(&[general, off]), [], "{off:?}");
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
            let endpoint = ("otlp-endpoint", "http://c:1".to_owned());
            vec![endpoint, ("otlp-protocol", protocol.to_owned()), ("otlp-headers", headers.to_owned())]
        };
        assert_eq!(flags(&general), expected("grpc", "a=b"));
        assert_eq!(flags(&[&general[..], &own].concat()), expected("http/protobuf", "t=u"));
    }

    #[test]
    fn a_switch_without_an_endpoint_is_reported() {
        let noticed = |variables: &[(&str, &str)]| {
            let mut found = EnvironmentFlags::default();
            review(&environment(variables), &mut found, |_| false);
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
        let attributes = resource(&environment(&variables));
        assert_eq!(attributes.as_deref(), Some("a=b,service.namespace=x%2Cy,service.instance.id=50%25"));
        assert_eq!(resource(&environment(&[])), None);
    }
}
