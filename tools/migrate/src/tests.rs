use std::{collections::BTreeMap, ffi::OsString};

use proptest::{prelude::*, sample::select};
use tollgate::settings::{self, Command, Settings};

use crate::{Report, VariableOutcome, effective::EffectiveSettings, source::Deployment};

/// Secret that no report may contain.
const SECRET: &str = "open-sesame";

/// Variables with values: valid ones, defaults and invalid ones.
const VALUES: [(&str, &[&str]); 58] = [
    ("BACKEND_TYPE", &["redis", "memcache"]),
    ("CACHE_KEY_PREFIX", &["limits:", "{a}"]),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", &["authorization:open-sesame"]),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &["/certs/a.pem"]),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &["/certs/a.key"]),
    ("CONFIG_GRPC_XDS_NODE_ID", &["limits"]),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &["/certs/ca.pem"]),
    ("CONFIG_GRPC_XDS_SERVER_URL", &["control:18000"]),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", &["true"]),
    ("CONFIG_TYPE", &["GRPC_XDS_SOTW", "FILE", "DNS"]),
    ("DEBUG_HOST", &["127.0.0.1", "0.0.0.0"]),
    ("DEBUG_PORT", &["6070", "7070"]),
    ("DOG_STATSD_MOGRIFIER_A_NAME", &["limits"]),
    ("DOG_STATSD_MOGRIFIER_A_PATTERN", &["^ratelimit (.*)$"]),
    ("EXTRA_TAGS", &["team:edge"]),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", &["true", "F"]),
    ("GRPC_CLIENT_TLS_CACERT", &["/certs/ca.pem"]),
    ("GRPC_CLIENT_TLS_SAN", &["envoy.example"]),
    ("GRPC_HOST", &["::", "127.0.0.1"]),
    ("GRPC_MAX_CONNECTION_AGE", &["1440m", "30s", "soon"]),
    ("GRPC_PORT", &["8081", "9081"]),
    ("GRPC_SERVER_TLS_CERT", &["/certs/a.pem"]),
    ("GRPC_SERVER_TLS_KEY", &["/certs/a.key"]),
    ("GRPC_SERVER_USE_TLS", &["true", "0"]),
    ("GRPC_UDS", &["/run/limits.sock"]),
    ("HOST", &["0.0.0.0"]),
    ("LIMIT_LIMIT_HEADER", &["X-Limit", "not a name"]),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", &["true", "FALSE"]),
    ("LOCAL_CACHE_SIZE_IN_BYTES", &["0", "1000000"]),
    ("LOG_LEVEL", &["WARN", "info", "loud"]),
    ("MERGE_DOMAIN_CONFIG", &["true"]),
    ("NEAR_LIMIT_RATIO", &["0.8", "0.5"]),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", &["http://collector:4317", "collector"]),
    ("OTEL_SERVICE_NAME", &["limits"]),
    ("PATH", &["/bin"]),
    ("PORT", &["8080", "http"]),
    ("QUOTA_MODE", &["true"]),
    ("REDIS_AUTH", &[SECRET, "user:open-sesame", "user:a@:/open-sesame"]),
    ("REDIS_PERSECOND", &["true", "false"]),
    ("REDIS_SENTINEL_AUTH", &[SECRET]),
    ("REDIS_SOCKET_TYPE", &["tcp", "unix"]),
    ("REDIS_TLS", &["true"]),
    ("REDIS_TLS_CACERT", &["/certs/redis.pem"]),
    ("REDIS_TLS_CLIENT_CERT", &["/certs/r.pem"]),
    ("REDIS_TLS_CLIENT_KEY", &["/certs/r.key"]),
    ("REDIS_TYPE", &["single", "SENTINEL", "cluster", "ring"]),
    (
        "REDIS_URL",
        &["redis:6379", "main,a:1,b:2", "a:1,b:2", "redis://:open-sesame@h:1/2", "/run/redis.sock"],
    ),
    ("RUNTIME_ROOT", &["/data", ""]),
    ("RUNTIME_SUBDIRECTORY", &["limits"]),
    ("SHADOW_MODE", &["true", "maybe"]),
    ("STATSD_HOST", &["statsd"]),
    ("STATS_FLUSH_INTERVAL", &["10s", "5s"]),
    ("TOLLGATE_STORE_TIMEOUT", &["10ms", "20ms"]),
    ("TOLLGATE_WORKRS", &["2"]),
    ("TRACING_ENABLED", &["true", "false"]),
    ("USE_DOG_STATSD", &["true"]),
    ("USE_DOG_STATSD_MOGRIFIERS", &["A"]),
    ("USE_PROMETHEUS", &["true"]),
];

fn environments() -> impl Strategy<Value = BTreeMap<String, String>> {
    let pair = select(&VALUES[..]).prop_flat_map(|(name, values)| (Just(name.to_owned()), select(values)));
    // The first value is the most common one, so that most environments are valid.
    let usual = select(&VALUES[..]).prop_map(|(name, values)| (name.to_owned(), values[0]));
    prop_oneof![1 => btree_of(pair.boxed()), 2 => btree_of(usual.boxed())]
}

fn btree_of(pair: BoxedStrategy<(String, &'static str)>) -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::vec(pair, 0..24)
        .prop_map(|pairs| pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect())
}

fn words_of(environment: &BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    environment.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn served(
    flags: impl IntoIterator<Item = OsString>,
    environment: Vec<(OsString, OsString)>,
) -> Option<Settings> {
    let words = ["tollgate".into(), "serve".into()].into_iter().chain(flags);
    match settings::parse(words, environment) {
        Ok(Command::Serve(mut settings)) => {
            settings.notices.clear();
            Some(*settings)
        }
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_reported_flags_have_the_same_settings_and_none_is_redundant(environment in environments()) {
        let by_environment = served([], words_of(&environment));
        let found = EffectiveSettings::of(words_of(&environment));
        prop_assert_eq!(found.problems.is_empty(), by_environment.is_some(), "{:?}", found.problems);
        let Some(by_environment) = by_environment else { return Ok(()) };
        let flags = |without: Option<usize>| {
            let words = found.words.iter().enumerate().filter(move |(at, _)| Some(*at) != without);
            served(words.map(|(_, word)| word.clone()), Vec::new())
        };
        let by_environment = Some(by_environment);
        prop_assert_eq!(&flags(None), &by_environment);
        for at in 0..found.words.len() {
            prop_assert_ne!(&flags(Some(at)), &by_environment, "{:?}", found.changed);
        }
    }

    #[test]
    fn a_report_has_every_variable_once_and_no_secret(environment in environments()) {
        let deployment = Deployment {
            source: "test".to_owned(),
            variables: words_of(&environment),
            not_seen: Vec::new(),
        };
        let report = Report::of(deployment, None);
        let mut reported: Vec<&str> =
            report.variables.iter().map(|variable| &*variable.name).chain(report.others.iter().map(|name| &**name)).collect();
        reported.sort_unstable();
        prop_assert_eq!(reported, environment.keys().map(|name| &**name).collect::<Vec<_>>());
        let json = serde_json::to_string(&report).expect("JSON");
        for text in [report.to_string(), json, format!("{report:?}")] {
            prop_assert!(!text.contains(SECRET), "{}", text);
        }
    }
}

#[test]
fn a_refused_variable_of_the_reference_is_reported_with_its_reason() {
    let environment = BTreeMap::from([("BACKEND_TYPE".to_owned(), "memcache".to_owned())]);
    let found = EffectiveSettings::of(words_of(&environment));
    assert_eq!(found.variables[0].outcome, VariableOutcome::Refused);
    assert!(found.problems[0].starts_with("BACKEND_TYPE: ") && found.settings.is_none());
}

#[test]
fn a_deployment_with_every_variable_loses_nothing() {
    let mut environment: BTreeMap<String, String> =
        VALUES.iter().map(|(name, values)| ((*name).to_owned(), values[0].to_owned())).collect();
    environment.remove("TOLLGATE_WORKRS");
    environment.insert("REDIS_SOCKET_TYPE".to_owned(), "tcp".to_owned());
    let found = EffectiveSettings::of(words_of(&environment));
    assert_eq!(found.problems, Vec::<String>::new());
    let by_environment = served([], words_of(&environment)).expect("it starts");
    assert_eq!(served(found.words.clone(), Vec::new()), Some(by_environment));
    assert!(found.changed.len() > 25, "{:?}", found.changed);
}
