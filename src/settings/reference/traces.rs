//! The reference's traces: a switch of its own, and OpenTelemetry's variables.

use crate::settings::{
    environment::{Environment, Found, Setting},
    parsers::boolean,
};

/// What turns them on there, whatever else is said of them.
const SWITCH: &str = "TRACING_ENABLED";

/// Where they go.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// What they are when they are on there and nobody says otherwise.
const DEFAULTS: [(&str, &str); 2] = [("trace-sample-ratio", "1"), ("otlp-service-name", "RateLimit")];

/// Whether there are any here.
pub(super) fn go_somewhere(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    let is_off = environment.get(SWITCH).map(boolean) == Some(Ok(false));
    given("otlp-endpoint") || !is_off && ENDPOINTS.into_iter().any(|name| environment.get(name).is_some())
}

/// Notes what is asked of them and is not so here.
pub(super) fn review(environment: &Environment, found: &mut Found, given: impl Fn(&str) -> bool) {
    let is_on = environment.get(SWITCH).map(boolean) == Some(Ok(true));
    if is_on && !go_somewhere(environment, &given) {
        found.notices.push(format!(
            "{SWITCH} has no effect: OTEL_EXPORTER_OTLP_ENDPOINT says where traces go, and is not set"
        ));
    }
    if go_somewhere(environment, given)
        && let Some(name) = other_protocol(environment, is_on)
    {
        found.notices.push(format!(
            "{name} has no effect: traces go by gRPC, so that OTEL_EXPORTER_OTLP_ENDPOINT has to name the collector's \
             port for that"
        ));
    }
}

/// What says, or means where nothing is said, that traces go by HTTP.
fn other_protocol(environment: &Environment, is_on: bool) -> Option<&'static str> {
    const OWN: &str = "TRACING_EXPORTER_PROTOCOL";
    const OTHERS: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
    let (name, protocol) = match is_on {
        true => (OWN, environment.get(OWN).unwrap_or("http")),
        false => (OTHERS, environment.get(OTHERS).unwrap_or("grpc")),
    };
    (protocol != "grpc").then_some(name)
}

/// Leaves out where they go, when they are off; adds what they are there, when they are on.
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
        // What is wrong with it is told elsewhere.
        Some(Err(_)) | None => {}
    }
}

/// What is told of the instance: what OpenTelemetry is told, and two variables beside.
pub(super) fn resource(environment: &Environment) -> Option<String> {
    let all = environment.get("OTEL_RESOURCE_ATTRIBUTES").map(str::to_owned);
    let own = [("TRACING_SERVICE_NAMESPACE", "namespace"), ("TRACING_SERVICE_INSTANCE_ID", "instance.id")]
        .into_iter()
        .filter_map(|(name, attribute)| {
            // A comma would begin another attribute.
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
    fn a_protocol_that_is_not_spoken_is_told_where_there_are_traces() {
        let noticed = |variables: &[(&str, &str)]| {
            let mut found = Found::default();
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
    fn what_is_told_of_the_instance_is_one_list() {
        let variables = [
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b"),
            ("TRACING_SERVICE_NAMESPACE", "x,y"),
            ("TRACING_SERVICE_INSTANCE_ID", "50%"),
        ];
        let told = resource(&environment(&variables));
        assert_eq!(told.as_deref(), Some("a=b,service.namespace=x%2Cy,service.instance.id=50%25"));
        assert_eq!(resource(&environment(&[])), None);
    }
}
