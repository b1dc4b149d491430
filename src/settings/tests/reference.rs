//! Variables of envoyproxy/ratelimit.

use super::*;

#[test]
fn defaults_are_the_ones_of_the_reference() {
    let settings = settings("", &[]);
    assert_eq!(settings.grpc.listen.to_string(), "0.0.0.0:8081");
    assert_eq!(settings.http.address.to_string(), "0.0.0.0:8080");
    assert_eq!(settings.grpc.max_connection_age, Some(Duration::from_secs(24 * 3600)));
    assert_eq!(settings.grpc.max_connection_age_grace, Some(Duration::from_secs(3600)));
    assert_eq!(settings.modes.near_limit_ratio, 0.8);
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
    assert_refused("", &[("BACKEND_TYPE", "memcache")], "BACKEND_TYPE");
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
    assert_refused("", &on[..1], "GRPC_SERVER_USE_TLS: set, but GRPC_SERVER_TLS_CERT is not");
    assert_refused("", &on[..2], "GRPC_SERVER_USE_TLS: set, but GRPC_SERVER_TLS_KEY is not");
    let tls = settings("--grpc-tls mine.pem,mine.key", &on).grpc.tls().expect("on");
    assert_eq!(tls.certificate, PathBuf::from("mine.pem"));
}

#[test]
fn trace_variables_of_the_reference_switch_as_there() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
    let traces = |variables: &[(&str, &str)]| settings("", variables).traces;
    assert_eq!(traces(&[("TRACING_ENABLED", "true")]).endpoint, None);
    assert_eq!(traces(&[("TRACING_ENABLED", "false"), endpoint]).endpoint, None);
    let on = ("TRACING_ENABLED", "true");
    let (named, sampled) = (("OTEL_SERVICE_NAME", "limits"), ("TRACING_SAMPLING_RATE", "0.5"));
    for (variables, name, ratio) in [
        (&[endpoint][..], "tollgate", 0.01),
        (&[on, endpoint], "RateLimit", 1.0),
        (&[on, endpoint, named, sampled], "limits", 0.5),
        (&[on, endpoint, ("TOLLGATE_OTLP_SERVICE_NAME", "mine")], "mine", 1.0),
    ] {
        let traces = traces(variables);
        assert_eq!((&*traces.service_name, traces.sample_ratio), (name, ratio), "{variables:?}");
    }
    // The variable for traces overrides the general one.
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other:4317");
    assert_eq!(traces(&[endpoint, own]).endpoint.as_deref(), Some("http://other:4317"));
}

#[test]
fn an_invalid_opentelemetry_variable_is_ignored_beside_one_of_the_reference() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
    let bad = ("OTEL_RESOURCE_ATTRIBUTES", "bad");
    let read =
        settings("", &[endpoint, bad, ("TRACING_SERVICE_NAMESPACE", "x"), ("OTEL_SERVICE_NAME", "limits")]);
    assert_eq!((&*read.traces.service_name, read.traces.resource), ("limits", None));
    assert!(
        read.notices.iter().any(|notice| notice.contains("OTEL_RESOURCE_ATTRIBUTES")),
        "{:?}",
        read.notices
    );
}

#[test]
fn a_flag_of_several_variables_replaces_all_of_them_and_says_so() {
    for (line, variable) in [
        ("--header-names limit=A", ("LIMIT_RESET_HEADER", "B")),
        ("--metrics-address 127.0.0.1:9", ("PROMETHEUS_PATH", "/p")),
        ("--statsd udp://127.0.0.1:9", ("USE_DOG_STATSD", "true")),
        ("--xds-backoff 1s,2s,0", ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "9s")),
    ] {
        let notices = settings(line, &[variable]).notices;
        let expected = format!("{} has no effect", variable.0);
        assert!(notices.iter().any(|notice| notice.starts_with(&expected)), "{line}: {notices:?}");
    }
    let rewrites = [
        ("USE_DOG_STATSD", "true"),
        ("USE_DOG_STATSD_MOGRIFIERS", "A"),
        ("DOG_STATSD_MOGRIFIER_A_PATTERN", "a"),
        ("DOG_STATSD_MOGRIFIER_A_NAME", "b"),
    ];
    let notices = settings("--statsd unix:///run/statsd", &rewrites).notices;
    assert!(notices.iter().any(|notice| notice.ends_with("expected --statsd-rewrite")), "{notices:?}");
}

#[test]
fn an_invalid_part_of_a_flag_is_named_with_its_own_text() {
    let xds = ("CONFIG_TYPE", "GRPC_XDS_SOTW");
    for (variables, expected) in [
        (
            &[xds, ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "1.5")][..],
            "XDS_CLIENT_BACKOFF_RANDOM_FACTOR: `1.5` is",
        ),
        (&[xds, ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "0s")], "XDS_CLIENT_BACKOFF_MAX_INTERVAL: `0s` is"),
        (&[("LIMIT_LIMIT_HEADER", "A"), ("LIMIT_RESET_HEADER", "b c")], "LIMIT_RESET_HEADER: `b c` is"),
        (&[("LIMIT_LIMIT_HEADER", "A,reset-at=B")], "LIMIT_LIMIT_HEADER: `A,reset-at=B` is"),
    ] {
        assert_refused("", variables, &format!("settings:\n  {expected} invalid"));
    }
}

#[test]
fn a_variable_of_a_former_part_names_the_whole_and_is_not_left_empty() {
    let part = "TOLLGATE_GRPC_TLS_CERT";
    let unknown = format!("{part}: unknown setting; did you mean `TOLLGATE_GRPC_TLS`?");
    assert_refused("", &[(part, "a")], &unknown);
    assert_refused("", &[(part, "")], &format!("{part}: is set but empty"));
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
    for (name, text) in [("PROMETHEUS_ADDR", "nowhere"), ("PROMETHEUS_PATH", "m")] {
        assert_refused("", &[on, (name, text)], &format!("\n  {name}: `{text}` is invalid; expected"));
    }
    let same = "--metrics-address: same as --http-address; expected another port";
    assert_refused("--http-address [::]:9090", &[on], same);
}
