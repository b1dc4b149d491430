//! The variables of envoyproxy/ratelimit that mean the same as one of our flags, so that replacing its image
//! is a migration.

mod redis;
mod tls;
mod xds;

use super::{
    environment::{Environment, Found, Setting},
    error::Problem,
    value::boolean,
};

/// Flags and the one variable that means the same and has values of the same form.
const SAME: [(&str, &str); 25] = [
    ("merge-domains", "MERGE_DOMAIN_CONFIG"),
    ("start-without-rules", "FORCE_START_WITHOUT_INITIAL_CONFIG"),
    ("key-prefix", "CACHE_KEY_PREFIX"),
    ("redis-ca", "REDIS_TLS_CACERT"),
    ("redis-client-cert", "REDIS_TLS_CLIENT_CERT"),
    ("redis-client-key", "REDIS_TLS_CLIENT_KEY"),
    ("grpc-unix-socket", "GRPC_UDS"),
    ("grpc-max-connection-age", "GRPC_MAX_CONNECTION_AGE"),
    ("grpc-max-connection-age-grace", "GRPC_MAX_CONNECTION_AGE_GRACE"),
    ("limit-header", "LIMIT_LIMIT_HEADER"),
    ("remaining-header", "LIMIT_REMAINING_HEADER"),
    ("reset-header", "LIMIT_RESET_HEADER"),
    ("dynamic-metadata", "RESPONSE_DYNAMIC_METADATA"),
    ("shadow-mode", "SHADOW_MODE"),
    ("quota-mode", "QUOTA_MODE"),
    ("near-limit-ratio", "NEAR_LIMIT_RATIO"),
    ("log-level", "LOG_LEVEL"),
    ("log-format", "LOG_FORMAT"),
    ("response-headers", HEADERS),
    ("reference-metrics", "USE_PROMETHEUS"),
    ("otlp-endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ("otlp-name", "OTEL_SERVICE_NAME"),
    ("otlp-name", "TRACING_SERVICE_NAME"),
    ("otlp-resource", "OTEL_RESOURCE_ATTRIBUTES"),
    ("trace-sample-ratio", "TRACING_SAMPLING_RATE"),
];

/// Flags that several variables make up.
const COMBINED: [(&str, &[&str]); 5] = [
    ("config", &["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"]),
    (
        "store",
        &["REDIS_URL", "REDIS_SOCKET_TYPE", "REDIS_TYPE", "REDIS_TLS", "REDIS_AUTH", "REDIS_SENTINEL_AUTH"],
    ),
    ("grpc-address", &["GRPC_HOST", "GRPC_PORT"]),
    ("http-address", &["HOST", "PORT"]),
    ("admin-address", &["DEBUG_HOST", "DEBUG_PORT"]),
];

/// What turns traces off there, whatever else is said of them.
const TRACING: &str = "TRACING_ENABLED";

/// On or off there, one of several styles here.
const HEADERS: &str = "LIMIT_RESPONSE_HEADERS_ENABLED";

/// What would silently be less safe, or quite another service, if it were ignored.
const REFUSED: [(&str, &str); 1] =
    [("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "not supported; set REDIS_TLS_CACERT instead, or unset this")];

/// What may be ignored, but not in silence.
const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("REDIS_PERSECOND", "one store keeps all limits"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "each algorithm says whether denied hits count"),
    ("USE_STATSD", "metrics are at /metrics"),
    (TRACING, "traces go where OTEL_EXPORTER_OTLP_ENDPOINT says"),
];

/// The variables that stand for a flag.
pub(super) fn variables(flag: &str) -> impl Iterator<Item = &'static str> {
    let same = SAME
        .iter()
        .chain(&tls::FLAGS)
        .filter(move |(known, _)| *known == flag)
        .map(|(_, variable)| *variable);
    let combined = COMBINED.iter().filter(move |(known, _)| *known == flag);
    same.chain(combined.flat_map(|(_, variables)| variables.iter().copied())).chain(xds::variables(flag))
}

/// Notes what asks for something that we have not.
pub(super) fn review(environment: &Environment, found: &mut Found, given: impl Fn(&str) -> bool) {
    tls::review(environment, found, &given);
    xds::review(environment, found, given);
    for (name, reason) in REFUSED {
        match environment.get(name).map(boolean) {
            Some(Ok(true)) => found.problems.push(Problem::new(name, reason)),
            Some(Err(error)) => found.problems.push(Problem::new(name, error)),
            Some(Ok(false)) | None => {}
        }
    }
    for (name, reason) in WITHOUT_EFFECT {
        match environment.get(name).map(boolean) {
            Some(Ok(true)) => found.notices.push(format!("{name} has no effect: {reason}")),
            Some(Err(error)) => found.problems.push(Problem::new(name, error)),
            Some(Ok(false)) | None => {}
        }
    }
    let is_sentinel = environment.get("REDIS_TYPE").is_some_and(|kind| kind.eq_ignore_ascii_case("sentinel"));
    if environment.get("REDIS_SENTINEL_AUTH").is_some() && !is_sentinel {
        found.notices.push("REDIS_SENTINEL_AUTH has no effect: REDIS_TYPE is not SENTINEL".to_owned());
    }
    let other = |name: &str, known: &str| {
        environment.get(name).filter(|value| !value.eq_ignore_ascii_case(known)).is_some()
    };
    if other("BACKEND_TYPE", "redis") {
        found.problems.push(Problem::new("BACKEND_TYPE", "only redis is supported, or the memory store"));
    }
}

/// Every flag that the reference's variables set, but for those that are `given` otherwise.
pub(super) fn settings(
    environment: &Environment,
    given: impl Fn(&str) -> bool,
    problems: &mut Vec<Problem>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (flag, variables) in COMBINED.into_iter().filter(|(flag, _)| !given(flag)) {
        let value = match flag {
            "config" => Ok(directory(environment)),
            "store" => redis::url(environment).transpose(),
            "grpc-address" => Ok(address(environment, ["GRPC_HOST", "GRPC_PORT"], ["0.0.0.0", "8081"])),
            "http-address" => Ok(address(environment, ["HOST", "PORT"], ["0.0.0.0", "8080"])),
            // There everyone may look.
            _ => Ok(address(environment, ["DEBUG_HOST", "DEBUG_PORT"], ["127.0.0.1", "6070"])),
        };
        let set: Vec<&str> =
            variables.iter().copied().filter(|name| environment.get(name).is_some()).collect();
        match value {
            Ok(None) => {}
            Ok(Some(value)) => settings.push(Setting { flag, variable: set.join(" with "), value }),
            Err(problem) => problems.push(problem),
        }
    }
    settings.extend(tls::settings(environment, &given));
    settings.extend(xds::settings(environment, &given));
    for (flag, variable) in SAME.into_iter().filter(|(flag, _)| !given(flag)) {
        let Some(value) = environment.get(variable) else { continue };
        if flag == "otlp-endpoint" && environment.get(TRACING).map(boolean) == Some(Ok(false)) {
            continue;
        }
        let value = match variable {
            HEADERS => match boolean(value) {
                Ok(is_on) => if is_on { "ratelimit" } else { "off" }.to_owned(),
                Err(reason) => {
                    problems.push(Problem::new(variable, reason));
                    continue;
                }
            },
            _ => value.to_owned(),
        };
        settings.push(Setting { flag, variable: variable.to_owned(), value });
    }
    settings
}

/// Where the reference looks for its files.
fn directory(environment: &Environment) -> Option<String> {
    let [root, below, app] =
        ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"].map(|name| environment.get(name));
    if root.is_none() && below.is_none() && app.is_none() {
        return None;
    }
    let parts = [root.or(Some("/srv/runtime_data/current")), below, app.or(Some("config"))];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    Some(parts.join("/"))
}

fn address(environment: &Environment, names: [&str; 2], usual: [&str; 2]) -> Option<String> {
    let [host, port] = names.map(|name| environment.get(name));
    if host.is_none() && port.is_none() {
        return None;
    }
    let [usual_host, usual_port] = usual;
    let (host, port) = (host.unwrap_or(usual_host), port.unwrap_or(usual_port));
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    Some(if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}
