//! Traces of the reference: its own variables and those of OpenTelemetry.

use crate::settings::{
    environment::{Environment, EnvironmentFlags, Setting},
    parsers::boolean,
};

/// Switch of traces, which overrides all other variables.
const SWITCH: &str = "TRACING_ENABLED";

/// Endpoints of the collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Flags with the defaults of the reference while traces are on.
const DEFAULTS: [(&str, &str); 2] = [("trace-sample-ratio", "1"), ("otlp-service-name", "RateLimit")];

/// Whether traces are exported.
pub(super) fn are_exported(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    let is_off = environment.get(SWITCH).map(boolean) == Some(Ok(false));
    given("otlp-endpoint") || !is_off && ENDPOINTS.into_iter().any(|name| environment.get(name).is_some())
}

/// Reports a missing endpoint and an unsupported protocol.
pub(super) fn review(environment: &Environment, found: &mut EnvironmentFlags, given: impl Fn(&str) -> bool) {
    let is_on = environment.get(SWITCH).map(boolean) == Some(Ok(true));
    if is_on && !are_exported(environment, &given) {
        found.notices.push(format!("{SWITCH} has no effect: OTEL_EXPORTER_OTLP_ENDPOINT is not set"));
    }
    if are_exported(environment, given)
        && let Some(name) = other_protocol(environment, is_on)
    {
        found.notices.push(format!(
            "{name} has no effect: traces are exported by gRPC; OTEL_EXPORTER_OTLP_ENDPOINT must be the gRPC port of the \
             collector"
        ));
    }
}

/// The variable that selects another protocol than gRPC, explicitly or by its default.
fn other_protocol(environment: &Environment, is_on: bool) -> Option<&'static str> {
    const RATELIMIT_PROTOCOL: &str = "TRACING_EXPORTER_PROTOCOL";
    const OTEL_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
    let (name, protocol) = match is_on {
        true => (RATELIMIT_PROTOCOL, environment.get(RATELIMIT_PROTOCOL).unwrap_or("http")),
        false => (OTEL_PROTOCOL, environment.get(OTEL_PROTOCOL).unwrap_or("grpc")),
    };
    (protocol != "grpc").then_some(name)
}

/// Removes the endpoint if traces are off; adds the reference's defaults if they are on.
pub(super) fn adjust(environment: &Environment, settings: &mut Vec<Setting>, given: impl Fn(&str) -> bool) {
    match environment.get(SWITCH).map(boolean) {
        Some(Ok(false)) => settings.retain(|setting| setting.flag != "otlp-endpoint"),
        Some(Ok(true)) => {
            for (flag, value) in DEFAULTS {
                if !given(flag) && settings.iter().all(|setting| setting.flag != flag) {
                    settings.push(Setting { flag, variable: SWITCH.to_owned(), value: value.to_owned() });
                }
            }
        }
        // The catalogue review reports an invalid switch.
        Some(Err(_)) | None => {}
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

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");

    #[test]
    fn an_unsupported_protocol_is_reported_if_traces_are_exported() {
        let noticed = |variables: &[(&str, &str)]| {
            let mut found = EnvironmentFlags::default();
            review(&environment(variables), &mut found, |_| false);
            let first = |notice: String| notice.split(' ').next().unwrap_or_default().to_owned();
            found.notices.into_iter().map(first).collect::<Vec<_>>()
        };
        let on = ("TRACING_ENABLED", "true");
        let none: [&str; 0] = [];
        assert_eq!(noticed(&[on]), ["TRACING_ENABLED"]);
        assert_eq!(noticed(&[on, ENDPOINT]), ["TRACING_EXPORTER_PROTOCOL"]);
        assert_eq!(noticed(&[on, ENDPOINT, ("TRACING_EXPORTER_PROTOCOL", "grpc")]), none);
        assert_eq!(noticed(&[ENDPOINT]), none);
        let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        assert_eq!(noticed(&[ENDPOINT, http]), ["OTEL_EXPORTER_OTLP_PROTOCOL"]);
        assert_eq!(noticed(&[http]), none);
        assert_eq!(noticed(&[("TRACING_ENABLED", "false"), ENDPOINT, http]), none);
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
