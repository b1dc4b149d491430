//! Traces of the reference: its own variables, which add to those of OpenTelemetry.

use super::telemetry;
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

/// Whether traces are exported.
pub(super) fn are_exported(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    let is_off = environment.get(SWITCH).map(boolean) == Some(Ok(false));
    given("otlp-endpoint") || !is_off && telemetry::traces_endpoint(environment).is_some()
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
pub(super) fn protocol(environment: &Environment) -> Option<(&'static str, String)> {
    const STATED: [&str; 3] =
        ["TRACING_EXPORTER_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    let [_, general @ ..] = STATED;
    if !is_on(environment) {
        return telemetry::first(environment, &general);
    }
    let endpoint = telemetry::traces_endpoint(environment);
    let is_grpc = endpoint.is_some_and(|(_, endpoint)| telemetry::port(&endpoint) == Some(GRPC_PORT));
    let default = || (!is_grpc).then(|| (SWITCH, "http/protobuf".to_owned()));
    telemetry::first(environment, &STATED).or_else(default)
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
