//! The reference's traces: a switch of its own, and OpenTelemetry's variables.

use crate::settings::{
    environment::{Environment, Found, Setting},
    value::boolean,
};

/// What turns them on there, whatever else is said of them.
const SWITCH: &str = "TRACING_ENABLED";

/// Where they go.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// What they are when they are on there and nobody says otherwise.
const DEFAULTS: [(&str, &str); 2] = [("trace-sample-ratio", "1"), ("otlp-name", "RateLimit")];

/// Whether there are any here.
pub(super) fn go_somewhere(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    let is_off = environment.get(SWITCH).map(boolean) == Some(Ok(false));
    given("otlp-endpoint") || !is_off && ENDPOINTS.into_iter().any(|name| environment.get(name).is_some())
}

/// Notes what is asked of them and is not so here.
pub(super) fn review(environment: &Environment, found: &mut Found, given: impl Fn(&str) -> bool) {
    let is_on = environment.get(SWITCH).map(boolean) == Some(Ok(true));
    if is_on && !go_somewhere(environment, given) {
        found.notices.push(format!(
            "{SWITCH} has no effect: OTEL_EXPORTER_OTLP_ENDPOINT says where traces go, and is not set"
        ));
    } else if is_on && environment.get("TRACING_EXPORTER_PROTOCOL").unwrap_or("http") != "grpc" {
        found.notices.push(format!(
            "TRACING_EXPORTER_PROTOCOL is grpc here, always: OTEL_EXPORTER_OTLP_ENDPOINT has to name the collector's port for that"
        ));
    }
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
