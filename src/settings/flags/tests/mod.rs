mod xds;

use std::{collections::HashSet, time::Duration};

use tollgate_control::RulesSource;
use tollgate_store::redis::RedisUrl;

use super::*;
use crate::{
    otlp::OtlpProtocol,
    service::{HeaderNames, HeaderStyle},
    settings::{GrpcListen, StoreSettings},
};

fn read(line: &str, variables: &[(&str, &str)]) -> Result<Command, SettingsError> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    parse(std::iter::once("tollgate").chain(line.split_whitespace()).map(OsString::from), variables)
}

fn settings(line: &str, variables: &[(&str, &str)]) -> Settings {
    match read(line, variables) {
        Ok(Command::Serve(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

fn refusal(line: &str, variables: &[(&str, &str)]) -> String {
    let error = read(line, variables).expect_err("refused");
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

fn redis_url(variables: &[(&str, &str)]) -> String {
    match settings("", variables).store {
        StoreSettings::Redis { redis, .. } => match redis.servers {
            RedisUrl::Standalone(url) => url,
            servers => panic!("{servers}"),
        },
        StoreSettings::Memory { .. } => panic!("memory"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn defaults_are_the_ones_of_the_reference() {
    let settings = settings("", &[]);
    assert_eq!(settings.grpc.listen.to_string(), "0.0.0.0:8081");
    assert_eq!(settings.http.address.to_string(), "0.0.0.0:8080");
    assert_eq!(settings.grpc.max_connection_age, Some(Duration::from_secs(24 * 3600)));
    assert_eq!(settings.grpc.max_connection_age_grace, Some(Duration::from_secs(3600)));
    assert_eq!(settings.modes.near_limit_ratio, 0.8);
    assert_eq!(settings.response.headers, HeaderStyle::Off);
    assert_eq!(settings.bounds, Default::default());
    assert!(matches!(settings.store, StoreSettings::Memory { max_counters: 1_000_000 }));
}

#[test]
fn a_flag_overrides_its_variable_which_overrides_that_of_the_reference() {
    let all = [("TOLLGATE_GRPC_ADDRESS", "127.0.0.1:2"), ("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", "3")];
    let listen = |line, variables| settings(line, variables).grpc.listen.to_string();
    for line in ["--grpc-address 127.0.0.1:1", "serve --grpc-address=127.0.0.1:1"] {
        assert_eq!(listen(line, &all), "127.0.0.1:1");
    }
    assert_eq!(listen("serve", &all), "127.0.0.1:2");
    assert_eq!(listen("", &all[1..]), "127.0.0.1:3");
    assert_eq!(listen("", &[("GRPC_HOST", "::1")]), "[::1]:8081");
}

#[test]
fn a_flag_can_switch_off_what_the_environment_switched_on() {
    assert!(settings("", &[("SHADOW_MODE", "T")]).modes.shadow);
    assert!(!settings("--shadow-mode=false", &[("SHADOW_MODE", "T")]).modes.shadow);
    assert!(settings("--shadow-mode", &[("TOLLGATE_SHADOW_MODE", "0")]).modes.shadow);
}

#[test]
fn every_wrong_variable_is_named_at_once_and_its_value_is_not_shown() {
    let text = refusal(
        "",
        &[
            ("TOLLGATE_STORE", "redis+cluster://:sesame@a/1"),
            ("TOLLGATE_LOG_FORMAT", "xml"),
            ("TOLLGATE_WORKERS", "0"),
            ("TOLLGATE_TYPO", "1"),
            ("QUOTA_MODE", "yes"),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", "yes"),
            ("GRPC_PORT", "eighty"),
            ("LOG_LEVEL", "loud"),
        ],
    );
    for name in ["STORE", "LOG_FORMAT", "WORKERS", "TYPO"] {
        assert!(text.contains(&format!("\n  TOLLGATE_{name}: ")), "{text}");
    }
    for name in ["QUOTA_MODE", "LIMIT_RESPONSE_HEADERS_ENABLED", "GRPC_PORT", "LOG_LEVEL"] {
        assert!(text.contains(&format!("\n  {name}: ")), "{text}");
    }
    assert!(text.contains("expected one of text, json"), "{text}");
    assert!(!text.contains("sesame"), "{text}");
}

#[test]
fn a_wrong_flag_is_named_and_its_value_is_not_shown() {
    let text = refusal("--store redis+cluster://:sesame@a/1", &[]);
    assert!(text.contains("--store: expected redis+cluster://"), "{text}");
    assert!(!text.contains("sesame"), "{text}");
    assert!(refusal("--store-timeout 10", &[]).contains("--store-timeout: expected a duration"));
    assert!(refusal("--redis-client-key k", &[]).contains("requires --redis-client-cert"));
}

#[test]
fn settings_in_debug_form_hold_no_password() {
    let settings = settings("--store redis://:sesame@host", &[]);
    assert!(!format!("{settings:?}").contains("sesame"));
    assert_eq!(settings.store.to_string(), "redis://:***@host");
}

#[test]
fn an_empty_variable_is_unset_and_those_of_kubernetes_are_ignored() {
    let variables =
        [("TOLLGATE_STORE", ""), ("LIMIT_LIMIT_HEADER", ""), ("TOLLGATE_PORT", "tcp://10.0.0.1:80")];
    assert!(matches!(settings("", &variables).store, StoreSettings::Memory { .. }));
}

#[test]
fn an_empty_variable_that_would_guard_a_port_is_refused() {
    for name in ["TOLLGATE_GRPC_TLS_CERT", "TOLLGATE_HTTP_TLS_CLIENT_CA", "TOLLGATE_ADMIN_TOKEN_FILE"] {
        assert!(refusal("", &[(name, "")]).contains(name));
    }
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
fn redis_variables_of_the_reference_become_a_url() {
    let url = ("REDIS_URL", "redis:6379");
    assert_eq!(redis_url(&[url, ("REDIS_SOCKET_TYPE", "tcp")]), "redis://redis:6379");
    assert_eq!(
        redis_url(&[url, ("REDIS_TLS", "true"), ("REDIS_AUTH", "p@ss")]),
        "rediss://:p%40ss@redis:6379"
    );
    assert_eq!(redis_url(&[url, ("REDIS_AUTH", "me:a:b")]), "redis://me:a%3Ab@redis:6379");
    assert_eq!(redis_url(&[("REDIS_URL", "/run/r.sock")]), "redis+unix:///run/r.sock");
    let unix = [("REDIS_URL", "/run/r.sock"), ("REDIS_AUTH", "me:pw")];
    assert_eq!(redis_url(&unix), "redis+unix:///run/r.sock?user=me&pass=pw");
    assert_eq!(redis_url(&[("REDIS_URL", "redis://u:p@h"), ("REDIS_AUTH", "x")]), "redis://u:p@h");
    assert!(
        refusal("", &[unix[0], ("REDIS_TLS", "true")]).contains("REDIS_TLS: true, but REDIS_URL is a socket")
    );
    assert!(refusal("", &[url, ("REDIS_TYPE", "SHARDED")]).contains("REDIS_TYPE: expected SINGLE"));
}

#[test]
fn sentinel_and_cluster_variables_of_the_reference_become_urls() {
    let servers = |variables: &[(&str, &str)]| match settings("", variables).store {
        StoreSettings::Redis { redis, .. } => redis.servers.to_string(),
        StoreSettings::Memory { .. } => panic!("no Redis"),
    };
    let sentinels = [("REDIS_TYPE", "Sentinel"), ("REDIS_URL", "mymaster,a:26379,b:26380")];
    assert_eq!(servers(&sentinels), "redis+sentinel://a:26379,b:26380/mymaster");
    let secured = [
        sentinels[0],
        sentinels[1],
        ("REDIS_TLS", "true"),
        ("REDIS_AUTH", "me:p@ss,w/d?"),
        ("REDIS_SENTINEL_AUTH", "p&ss"),
    ];
    let shown = "rediss+sentinel://me:***@a:26379,b:26380/mymaster?sentinel_password=***";
    assert_eq!(servers(&secured), shown);
    let cluster = [("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", "a:6379,b:6379")];
    assert_eq!(servers(&cluster), "redis+cluster://a:6379,b:6379");
    let secured = [cluster[0], cluster[1], ("REDIS_TLS", "true"), ("REDIS_AUTH", "p@ss")];
    assert_eq!(servers(&secured), "rediss+cluster://:***@a:6379,b:6379");
    // A login in the URL overrides that of the variable, as with one server.
    for (kind, url, shown) in [
        ("CLUSTER", "u2:p2@a:1,b:1", "redis+cluster://u2:***@a:1,b:1"),
        ("SENTINEL", "m,u2:p2@a:1", "redis+sentinel://u2:***@a:1/m"),
    ] {
        assert_eq!(servers(&[("REDIS_TYPE", kind), ("REDIS_URL", url), ("REDIS_AUTH", "u:p")]), shown);
    }
    let lone = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "a:26379")];
    assert!(refusal("", &lone).contains("REDIS_URL: expected MASTER"));
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
    assert_eq!((off.grpc.tls, off.notices.len()), (None, 4));

    let on = [&[("GRPC_SERVER_USE_TLS", "true")], &files[..]].concat();
    let tls = settings("", &on).grpc.tls.expect("on");
    assert_eq!((tls.certificate, tls.key), ("cert.pem".into(), "key.pem".into()));
    let clients = tls.clients.expect("clients");
    assert_eq!((clients.authorities, clients.names), ("ca.pem".into(), vec!["envoy.mesh".to_owned()]));
    assert!(refusal("", &on[..1]).contains("GRPC_SERVER_USE_TLS: set, but GRPC_SERVER_TLS_CERT is not"));
    assert!(refusal("", &on[..2]).contains("GRPC_SERVER_USE_TLS: set, but GRPC_SERVER_TLS_KEY is not"));
    let tls = settings("--grpc-tls-cert mine.pem", &on).grpc.tls.expect("on");
    assert_eq!(tls.certificate, PathBuf::from("mine.pem"));
}

#[test]
fn clients_may_have_one_of_several_names() {
    let line =
        "--grpc-tls-cert c --grpc-tls-key k --grpc-tls-client-ca a --grpc-tls-client-san x,spiffe://m/y";
    let names = |line: &str, variables| {
        settings(line, variables).grpc.tls.expect("on").clients.expect("clients").names
    };
    assert_eq!(names(&format!("{line} --grpc-tls-client-san z"), &[]), ["x", "spiffe://m/y", "z"]);
    // A flag overrides its variable here too, so that the variable accepts no further clients.
    assert_eq!(names(line, &[("TOLLGATE_GRPC_TLS_CLIENT_SAN", "other")]), ["x", "spiffe://m/y"]);
}

#[test]
fn only_a_loopback_admin_port_needs_no_authentication() {
    let admin = |line: &str, variables: &[(&str, &str)]| {
        settings(line, variables).admin.map(|admin| admin.address.to_string())
    };
    assert_eq!(admin("", &[]).as_deref(), Some("127.0.0.1:6070"));
    assert_eq!(admin("--admin-address off", &[]), None);
    assert_eq!(admin("", &[("DEBUG_PORT", "1")]).as_deref(), Some("127.0.0.1:1"));
    for host in ["0.0.0.0", "::", "[::]", "10.0.0.1"] {
        let variables = [("DEBUG_HOST", host), ("DEBUG_PORT", "1")];
        assert_eq!(admin("", &variables).as_deref(), Some("127.0.0.1:1"), "{host}");
        assert!(settings("", &variables).notices[0].starts_with("DEBUG_HOST has no effect: "));
    }
    let guarded = [("DEBUG_HOST", "::"), ("TOLLGATE_ADMIN_TOKEN_FILE", "t")];
    assert_eq!(admin("", &guarded).as_deref(), Some("[::]:6070"));
    assert!(settings("", &guarded).notices.is_empty());
    assert!(settings("", &[("DEBUG_HOST", "localhost")]).notices.is_empty());
    for open in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
        let line = format!("--admin-address {open}");
        let refused = refusal(&line, &[]);
        assert!(
            refused.contains("--admin-token-file") && refused.contains("--admin-tls-client-ca"),
            "{refused}"
        );
        // A server certificate does not authenticate clients.
        let refused = refusal(&format!("{line} --admin-tls-cert c --admin-tls-key k"), &[]);
        assert!(refused.contains("--admin-address: "), "{refused}");
        for key in ["--admin-token-file t", "--admin-tls-cert c --admin-tls-key k --admin-tls-client-ca a"] {
            let line = format!("{line} {key}");
            assert_eq!(admin(&line, &[]).as_deref(), Some(open));
        }
    }
}

#[test]
fn headers_have_the_configured_names() {
    let variables = [("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_RESET_HEADER", "X-Reset")];
    let names = HeaderNames { reset: "X-Reset".to_owned(), ..HeaderNames::ratelimit() };
    assert_eq!(settings("", &variables).response.headers, HeaderStyle::Triple(names));
    let names = HeaderNames::x_ratelimit();
    let line = "--response-headers x-ratelimit";
    assert_eq!(settings(line, &[]).response.headers, HeaderStyle::Triple(names));
}

#[test]
fn zero_switches_ages_and_bounds_of_connections_off() {
    let grpc =
        settings("--grpc-max-connection-age 0 --grpc-max-streams 0 --grpc-keepalive-interval 0s", &[]).grpc;
    assert_eq!((grpc.max_connection_age, grpc.max_streams, grpc.keepalive_interval), (None, None, None));
}

#[test]
fn a_unix_socket_stands_in_for_the_port_unless_something_stronger_names_one() {
    let variables = [("GRPC_UDS", "/run/rl.sock"), ("GRPC_PORT", "1")];
    let socket = GrpcListen::Unix("/run/rl.sock".into());
    assert_eq!(settings("", &variables).grpc.listen, socket);
    assert_eq!(settings("--grpc-unix-socket /run/rl.sock", &[]).grpc.listen, socket);
    let listen = settings("--grpc-address 127.0.0.1:1", &variables).grpc.listen;
    assert_eq!(listen.to_string(), "127.0.0.1:1");
}

#[test]
fn check_takes_its_own_settings_from_the_environment_and_ignores_the_others() {
    let variables = [("MERGE_DOMAIN_CONFIG", "true"), ("TOLLGATE_TYPO", "1"), ("GRPC_PORT", "x")];
    let Ok(Command::Check(flags)) = read("check --strict dir", &variables) else { panic!("no check") };
    assert_eq!(flags.directory, PathBuf::from("dir"));
    assert_eq!(
        flags.options(),
        tollgate_rules::config::Options {
            merge_domains: true,
            strict: true,
            allow_empty: false,
            ..Default::default()
        }
    );
}

#[test]
fn help_is_no_failure_and_names_every_variable() {
    let error = read("--help", &[("TOLLGATE_TYPO", "1")]).expect_err("help");
    assert_eq!(error.exit_code(), 0);
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["[env: TOLLGATE_GRPC_ADDRESS, GRPC_HOST, GRPC_PORT]", "[default: 0.0.0.0:8081]", "Store:"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn no_setting_has_the_name_of_a_variable_that_kubernetes_creates() {
    let command = Cli::command();
    let names: HashSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    assert!(names.len() > 30);
    // As in TOLLGATE_SERVICE_HOST, TOLLGATE_SERVICE_PORT and TOLLGATE_PORT.
    let is_link = |name: &str| {
        name.ends_with("-port") || name.contains("service-host") || name.contains("service-port")
    };
    assert!(!names.into_iter().any(is_link));
}

#[test]
fn rules_come_from_where_the_counters_live_or_from_a_directory() {
    let redis = "--store redis://localhost";
    for (line, source) in [
        (String::new(), RulesSource::Directory),
        (redis.to_owned(), RulesSource::Directory),
        (format!("{redis} --rules redis"), RulesSource::Redis),
        ("--rules memory --rules-file /tmp/rules.json".to_owned(), RulesSource::Memory),
    ] {
        assert_eq!(settings(&line, &[]).rules.source, source, "{line}");
    }
    assert_eq!(settings(redis, &[("TOLLGATE_RULES", "redis")]).rules.source, RulesSource::Redis);
    assert!(refusal("--rules redis", &[]).contains("--rules: `redis` without a Redis"));
    assert!(
        refusal(&format!("{redis} --rules memory"), &[]).contains("--rules: `memory` with a Redis store")
    );
    assert!(refusal("--rules-file /tmp/rules.json", &[]).contains("--rules-file: only for --rules memory"));
    assert!(refusal("--rules nowhere", &[]).contains("directory, redis, memory"));
}

#[test]
fn trace_variables_of_the_reference_switch_as_there() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
    let traces = |variables: &[(&str, &str)]| settings("", variables).traces;
    assert_eq!(traces(&[("TRACING_ENABLED", "true")]), None);
    assert_eq!(traces(&[("TRACING_ENABLED", "false"), endpoint]), None);
    let named_and_sampled = |variables: &[(&str, &str)]| {
        let traces = traces(variables).expect("on");
        (traces.collector.service_name, traces.sample_ratio)
    };
    let on = ("TRACING_ENABLED", "true");
    assert_eq!(named_and_sampled(&[endpoint]), ("tollgate".to_owned(), 0.01));
    assert_eq!(named_and_sampled(&[on, endpoint]), ("RateLimit".to_owned(), 1.0));
    let named = [on, endpoint, ("OTEL_SERVICE_NAME", "limits"), ("TRACING_SAMPLING_RATE", "0.5")];
    assert_eq!(named_and_sampled(&named), ("limits".to_owned(), 0.5));
    assert_eq!(
        named_and_sampled(&[on, endpoint, ("TOLLGATE_OTLP_SERVICE_NAME", "mine")]),
        ("mine".to_owned(), 1.0)
    );
    // The variable for traces overrides the general one.
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other:4317");
    assert_eq!(traces(&[endpoint, own]).expect("on").collector.endpoint, "http://other:4317");
}

#[test]
fn the_protocol_of_traces_does_not_affect_metrics() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("OTEL_METRICS_EXPORTER", "otlp"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
    ];
    let protocols = |arguments: &str, variables: &[(&str, &str)]| {
        let settings = settings(arguments, variables);
        let [traces, metrics] =
            [settings.traces.map(|to| to.collector), settings.otlp_metrics.map(|to| to.collector)];
        (traces.expect("on").protocol, metrics.expect("on").protocol)
    };
    assert_eq!(protocols("", &variables), (OtlpProtocol::Grpc, OtlpProtocol::Http));
    let by_flag = "--otlp-metrics-endpoint http://other:4318";
    assert_eq!(protocols(by_flag, &[variables[0], variables[2]]), (OtlpProtocol::Grpc, OtlpProtocol::Http));
    // A flag states that of both collectors.
    assert_eq!(protocols("--otlp-protocol grpc", &variables), (OtlpProtocol::Grpc, OtlpProtocol::Grpc));
    let general = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    assert_eq!(
        protocols("", &[variables[0], variables[1], general]),
        (OtlpProtocol::Grpc, OtlpProtocol::Grpc)
    );
}

#[test]
fn prometheus_variables_of_the_reference_open_a_separate_port() {
    let metrics = |variables: &[(&str, &str)]| {
        let metrics = settings("", variables).metrics;
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
    assert!(refusal("", &[on, ("PROMETHEUS_ADDR", "nowhere")]).contains("\n  PROMETHEUS_ADDR: expected"));
    assert!(refusal("", &[on, ("PROMETHEUS_PATH", "m")]).contains("\n  PROMETHEUS_PATH: expected"));
    assert!(
        refusal("--http-address [::]:9090", &[on])
            .contains("--metrics-address: same as --http-address; expected another port")
    );
}

#[test]
fn a_variable_of_redis_without_a_url_does_not_select_memory() {
    for orphan in
        [("REDIS_TYPE", "SINGLE"), ("REDIS_AUTH", "p"), ("REDIS_TLS", "1"), ("BACKEND_TYPE", "redis")]
    {
        let text = refusal("", &[orphan]);
        assert!(text.contains(&format!("\n  {}: set, but REDIS_URL is not", orphan.0)), "{text}");
        assert!(settings("--store memory", &[orphan]).notices.is_empty());
    }
    assert!(settings("", &[("REDIS_TLS", "false")]).notices.is_empty());
    let path = [("REDIS_SOCKET_TYPE", "unix"), ("REDIS_URL", "redis:6379")];
    assert!(refusal("", &path).contains("\n  REDIS_SOCKET_TYPE: unix, but REDIS_URL is not a path"));
    let url = redis_url(&[("REDIS_URL", "redis:6379")]);
    assert_eq!(url, "redis://redis:6379");
}
