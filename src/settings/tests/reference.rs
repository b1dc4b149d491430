//! Variables of envoyproxy/ratelimit.

use super::*;

#[test]
fn defaults_are_the_ones_of_the_reference() {
    let settings = settings("", &[]);
    assert_eq!(settings.grpc.listen.to_string(), "0.0.0.0:8081");
    assert_eq!(settings.http.address.to_string(), "0.0.0.0:8080");
    assert_eq!(settings.grpc.max_connection_age, Some(Duration::from_secs(24 * 3600)));
    assert_eq!(settings.grpc.max_connection_age_grace, Some(Duration::from_secs(3600)));
    assert_eq!(settings.modes().near_limit_ratio, 0.8);
    assert_eq!(settings.response.headers, HeaderStyle::Off);
    assert!(settings.store.redis().is_none() && settings.store.max_counters == 1_000_000);
}

#[test]
fn directory_variables_of_the_reference_are_joined_as_there() {
    let directory = |variables| settings("", variables).rules.directory.display().to_string();
    assert_eq!(directory(&[]), "config/default");
    assert_eq!(directory(&[("RUNTIME_ROOT", "/data")]), "/data/config");
    let all = [("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "rl"), ("RUNTIME_APPDIRECTORY", "cfg")];
    assert_eq!(directory(&all), "/data/rl/cfg");
    assert_eq!(directory(&[("RUNTIME_SUBDIRECTORY", "rl")]), "/srv/runtime_data/current/rl/config");
}

#[test]
fn unsupported_variables_are_refused_or_reported() {
    assert!(refusal("", &[("BACKEND_TYPE", "memcache")]).contains("BACKEND_TYPE"));
    assert!(
        settings("", &[("REDIS_PERSECOND", "true")]).notices[0].starts_with("REDIS_PERSECOND has no effect")
    );
    let others = [("REDIS_URL", "a:6379"), ("REDIS_SENTINEL_AUTH", "p")];
    assert!(settings("", &others).notices[0].starts_with("REDIS_SENTINEL_AUTH has no effect"));
    let sentinels = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "m,a:1"), others[1]];
    assert!(settings("", &sentinels).notices.is_empty());
    assert!(settings("", &[("GRPC_SERVER_USE_TLS", "false"), ("CONFIG_TYPE", "file")]).notices.is_empty());
}

#[test]
fn reference_tls_is_switched_on_by_one_variable_and_configured_by_four() {
    let files = [
        ("GRPC_SERVER_TLS_CERT", "cert.pem"),
        ("GRPC_SERVER_TLS_KEY", "key.pem"),
        ("GRPC_CLIENT_TLS_CACERT", "ca.pem"),
        ("GRPC_CLIENT_TLS_SAN", "envoy.mesh"),
    ];
    let off = settings("", &files);
    assert_eq!((off.grpc.tls(), off.notices.len()), (None, 4));

    let on = [&[("GRPC_SERVER_USE_TLS", "true")], &files[..]].concat();
    let tls = settings("", &on).grpc.tls().expect("on");
    assert_eq!((tls.certificate, tls.key), ("cert.pem".into(), "key.pem".into()));
    let clients = tls.clients.expect("clients");
    assert_eq!((clients.authorities, clients.names), ("ca.pem".into(), vec!["envoy.mesh".to_owned()]));
    assert!(refusal("", &on[..1]).contains("GRPC_SERVER_USE_TLS: set, but GRPC_SERVER_TLS_CERT is not"));
    assert!(refusal("", &on[..2]).contains("GRPC_SERVER_USE_TLS: set, but GRPC_SERVER_TLS_KEY is not"));
    let tls = settings("--grpc-tls mine.pem,mine.key", &on).grpc.tls().expect("on");
    assert_eq!(tls.certificate, PathBuf::from("mine.pem"));
}

#[test]
fn trace_variables_of_the_reference_switch_as_there() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
    let traces = |variables: &[(&str, &str)]| settings("", variables).traces;
    assert_eq!(traces(&[("TRACING_ENABLED", "true")]).endpoint, None);
    assert_eq!(traces(&[("TRACING_ENABLED", "false"), endpoint]).endpoint, None);
    let named_and_sampled = |variables: &[(&str, &str)]| {
        let traces = traces(variables);
        let DescriptorArgument(attributes) = traces.resource.unwrap_or(DescriptorArgument(Vec::new()));
        let name = attributes.into_iter().rev().find(|(key, _)| key == "service.name");
        (name.map_or_else(|| "tollgate".to_owned(), |(_, name)| name), traces.sample_ratio)
    };
    let on = ("TRACING_ENABLED", "true");
    assert_eq!(named_and_sampled(&[endpoint]), ("tollgate".to_owned(), 0.01));
    assert_eq!(named_and_sampled(&[on, endpoint]), ("RateLimit".to_owned(), 1.0));
    let named = [on, endpoint, ("OTEL_SERVICE_NAME", "limits"), ("TRACING_SAMPLING_RATE", "0.5")];
    assert_eq!(named_and_sampled(&named), ("limits".to_owned(), 0.5));
    assert_eq!(
        named_and_sampled(&[on, endpoint, ("TOLLGATE_OTLP_RESOURCE_ATTRIBUTES", "service.name=mine")]),
        ("mine".to_owned(), 1.0)
    );
    // The variable for traces overrides the general one.
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other:4317");
    assert_eq!(traces(&[endpoint, own]).endpoint.as_deref(), Some("http://other:4317"));
}

#[test]
fn prometheus_variables_of_the_reference_open_a_separate_port() {
    let metrics = |variables: &[(&str, &str)]| {
        let metrics = settings("", variables).http.metrics;
        metrics.map(|metrics| (metrics.address.to_string(), metrics.path))
    };
    let at = |address: &str, path: &str| Some((address.to_owned(), path.to_owned()));
    let on = ("USE_PROMETHEUS", "true");
    assert_eq!(metrics(&[]), None);
    assert_eq!(metrics(&[("PROMETHEUS_ADDR", ":1"), ("PROMETHEUS_PATH", "/m")]), None);
    assert_eq!(metrics(&[on]), at("[::]:9090", "/metrics"));
    assert_eq!(metrics(&[on, ("PROMETHEUS_ADDR", ":1"), ("PROMETHEUS_PATH", "/m")]), at("[::]:1", "/m"));
    assert_eq!(metrics(&[on, ("PROMETHEUS_ADDR", "127.0.0.1:1")]), at("127.0.0.1:1", "/metrics"));
    let ours = ("TOLLGATE_METRICS_ADDRESS", "127.0.0.1:2");
    assert_eq!(metrics(&[on, ("PROMETHEUS_ADDR", ":1"), ours]), at("127.0.0.1:2", "/metrics"));
    assert!(
        refusal("", &[on, ("PROMETHEUS_ADDR", "nowhere")])
            .contains("\n  PROMETHEUS_ADDR: `nowhere` is invalid; expected")
    );
    assert!(
        refusal("", &[on, ("PROMETHEUS_PATH", "m")])
            .contains("\n  PROMETHEUS_PATH: `m` is invalid; expected")
    );
    assert!(
        refusal("--http-address [::]:9090", &[on])
            .contains("--metrics-address: same as --http-address; expected another port")
    );
}
