#[cfg(feature = "cli")]
mod admin_client;
mod reference;
mod reference_redis;
mod statsd;
mod xds;

use std::{collections::HashSet, ffi::OsString, path::PathBuf, time::Duration};

use tollgate_control::RulesSource;
use tollgate_serve::grpc::GrpcListen;
use tollgate_serve::service::{HeaderNames, HeaderStyle};
use tollgate_store::redis::RedisUrl;

use super::*;

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

/// Asserts that settings are refused with a text, which shows no secret.
#[track_caller]
fn assert_refused(line: &str, variables: &[(&str, &str)], expected: &str) {
    let text = refusal(line, variables);
    assert!(text.contains(expected) && !text.contains("sesame"), "{line} {variables:?}: {text}");
}

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
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
fn every_wrong_variable_is_named_at_once_and_its_secret_is_not_shown() {
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
    assert!(text.contains("`xml` is invalid; expected one of text, json"), "{text}");
    assert!(text.contains("TOLLGATE_WORKERS: `0` is invalid; expected a whole number above zero"), "{text}");
    assert!(!text.contains("sesame"), "{text}");
}

#[cfg(all(feature = "cli", feature = "regions"))]
#[test]
fn a_wrong_flag_is_named_and_its_secret_is_not_shown() {
    for (line, expected) in [
        (
            "--store redis+cluster://:sesame@a/1",
            "--store: `redis+cluster://:***@a/1` is invalid; expected redis+cluster://",
        ),
        ("--store-timeout 10", "--store-timeout: `10` is invalid; expected a duration"),
        ("--redis-client-cert c", "--redis-client-cert: expected CERT,KEY"),
        ("--grpc-tls-client-ca a", "--grpc-tls-client-ca: requires --grpc-tls"),
        ("--http-tls c,k --http-tls-client-san a", "--http-tls-client-san: requires --http-tls-client-ca"),
        ("--webhook-ca c", "--webhook-ca: requires --webhook-url"),
        ("--region us", "--region: requires --regions"),
        ("--regions f", "--regions: requires --region"),
        ("--region us --regions f --region-address 1.2.3.4:5", "--region-address: requires --region-tls"),
        ("--region us --regions f --region-tls c,k,a", "--region-tls: requires --region-address"),
        (
            "--grpc-tls-client-ca a --http-tls-client-ca a",
            "--grpc-tls-client-ca: requires --grpc-tls\n  --http-tls-client-ca: requires --http-tls",
        ),
        ("--grpc-tls-client-san ,a", "--grpc-tls-client-san: has an empty name; expected NAME"),
    ] {
        assert_refused(line, &[], &format!("settings:\n  {expected}"));
    }
    assert_refused("", &[("TOLLGATE_WEBHOOK_CA", "c")], "\n  --webhook-ca: requires --webhook-url");
    // Words and variables supply each other.
    let tls = settings("--grpc-tls-client-ca a", &[("TOLLGATE_GRPC_TLS", "c,k")]).grpc.tls().expect("on");
    assert_eq!((tls.key, tls.clients.expect("clients").authorities), ("k".into(), "a".into()));
}

#[cfg(feature = "regions")]
#[test]
fn the_service_between_regions_has_mutual_tls() {
    assert_eq!(settings("", &[]).region, None);
    let region = settings("--region us --regions f", &[]).region.expect("a region");
    assert_eq!((&*region.name, region.table, region.peers), ("us", "f".into(), None));
    let line = "--region us --regions f --region-address 127.0.0.1:8444 --region-tls c,k,a";
    let peers = settings(line, &[]).region.expect("a region").peers.expect("a service");
    assert_eq!((peers.tls.certificate, peers.tls.key), ("c".into(), "k".into()));
    assert_eq!(peers.tls.clients.expect("mutual").authorities, PathBuf::from("a"));
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
    assert!(settings("", &variables).store.redis().is_none());
}

#[test]
fn an_empty_variable_that_would_guard_a_port_is_refused() {
    for name in ["TOLLGATE_GRPC_TLS", "TOLLGATE_HTTP_TLS_CLIENT_CA", "TOLLGATE_ADMIN_TOKEN_FILE"] {
        assert_refused("", &[(name, "")], name);
    }
}

#[test]
fn clients_may_have_one_of_several_names() {
    let line = "--grpc-tls c,k --grpc-tls-client-ca a --grpc-tls-client-san x,spiffe://m/y";
    let names = |line: &str, variables| {
        settings(line, variables).grpc.tls().expect("on").clients.expect("clients").names
    };
    assert_eq!(names(&format!("{line} --grpc-tls-client-san z"), &[]), ["x", "spiffe://m/y", "z"]);
    // A flag overrides its variable here too, so that the variable accepts no further clients.
    assert_eq!(names(line, &[("TOLLGATE_GRPC_TLS_CLIENT_SAN", "other")]), ["x", "spiffe://m/y"]);
}

#[test]
fn only_a_loopback_admin_port_needs_no_authentication() {
    let admin = |line: &str, variables: &[(&str, &str)]| {
        settings(line, variables).admin.address.map(|address| address.to_string())
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
        assert_refused(&line, &[], "--admin-token-file");
        assert_refused(&line, &[], "--admin-tls-client-ca");
        // A server certificate does not authenticate clients.
        assert_refused(&format!("{line} --admin-tls c,k"), &[], "--admin-address: ");
        for key in ["--admin-token-file t", "--admin-tls c,k --admin-tls-client-ca a"] {
            let line = format!("{line} {key}");
            assert_eq!(admin(&line, &[]).as_deref(), Some(open));
        }
    }
}

#[test]
fn headers_have_the_configured_names() {
    let variables = [("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_RESET_HEADER", "X-Reset")];
    let names = HeaderNames { reset: Some("X-Reset".to_owned()), ..HeaderNames::default() };
    let response = settings("", &variables).response;
    assert_eq!((response.headers, response.header_names), (HeaderStyle::Ratelimit, names));
    let line = "--response-headers x-ratelimit";
    assert_eq!(settings(line, &[]).response.headers, HeaderStyle::XRatelimit);
}

#[test]
fn zero_switches_ages_of_connections_off() {
    let grpc = settings("--grpc-max-connection-age 0 --grpc-max-connection-age-grace 0s", &[]).grpc;
    assert_eq!((grpc.max_connection_age, grpc.max_connection_age_grace), (None, None));
}

#[test]
fn a_unix_socket_stands_in_for_the_port_unless_something_stronger_names_one() {
    let variables = [("GRPC_UDS", "/run/rl.sock"), ("GRPC_PORT", "1")];
    let socket = GrpcListen::Unix("/run/rl.sock".into());
    assert_eq!(settings("", &variables).grpc.listen, socket);
    assert_eq!(settings("--grpc-address unix:/run/rl.sock", &[]).grpc.listen, socket);
    let listen = settings("--grpc-address 127.0.0.1:1", &variables).grpc.listen;
    assert_eq!(listen.to_string(), "127.0.0.1:1");
}

#[cfg(feature = "cli")]
#[test]
fn check_takes_its_own_settings_from_the_environment_and_ignores_the_others() {
    let variables = [("MERGE_DOMAIN_CONFIG", "true"), ("TOLLGATE_TYPO", "1"), ("GRPC_PORT", "x")];
    let Ok(Command::Cli(command)) = read("check --strict dir", &variables) else { panic!("no command") };
    let tollgate_cli::Verb::Check(flags) = *command else { panic!("no check") };
    assert_eq!(flags.directory, PathBuf::from("dir"));
    assert_eq!(
        flags.reading.options(),
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
    for part in
        ["[env: TOLLGATE_GRPC_ADDRESS, GRPC_HOST, GRPC_PORT, GRPC_UDS]", "[default: 0.0.0.0:8081]", "Store:"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn an_operator_sees_at_most_80_flags_and_the_basic_ones_in_short_help() {
    let command = command();
    let hidden = command.get_arguments().filter(|arg| arg.is_hide_set()).count();
    assert!(hidden <= 5, "{hidden} are for tests");
    assert!(command.get_arguments().count() <= 80 + hidden);
    for line in ["-h", "serve -h"] {
        let text = read(line, &[]).expect_err("help").to_string();
        let shown = text.lines().filter(|line| line.starts_with("      --")).count();
        assert!((10..=20).contains(&shown) && text.contains("--store "), "{shown} in {text}");
    }
}

#[test]
fn no_setting_has_the_name_of_a_variable_that_kubernetes_creates() {
    let command = command();
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
        ("--rules memory".to_owned(), RulesSource::Memory),
    ] {
        assert_eq!(settings(&line, &[]).rules.source, source, "{line}");
    }
    assert_eq!(settings(redis, &[("TOLLGATE_RULES", "redis")]).rules.source, RulesSource::Redis);
    assert_refused("--rules redis", &[], "--rules: `redis` without a Redis");
    assert_refused(&format!("{redis} --rules memory"), &[], "--rules: `memory` with a Redis store");
    assert_refused("--rules nowhere", &[], "directory, redis, memory");
}

#[cfg(all(feature = "cli", feature = "regions"))]
#[test]
fn an_error_shows_the_whole_name_the_text_and_the_expected_form() {
    for (line, expected) in [
        (
            "explain --domain d edge",
            "arguments of `tollgate explain`:\n  <KEY=VALUE,…>: `edge` is not an entry; expected",
        ),
        ("top --limit 0", "--limit: `0` is invalid; expected a whole number from 1 to 100"),
        (
            "record switch shadow --domain d --rule r --reason x --enforce-percent 2O",
            "`2O` is invalid; expected a percentage",
        ),
        ("rules rollback one", "<NUMBER>: `one` is invalid; expected a whole number"),
        (
            "--replicas-hint=-1",
            "cannot start; invalid settings:\n  --replicas-hint: `-1` is invalid; expected a whole",
        ),
        ("--max-connections x", "--max-connections: `x` is invalid; expected a whole number above zero"),
        ("--region-address here", "--region-address: `here` is invalid; expected ADDRESS:PORT"),
        ("--otlp-endpoint http://me:sesame@h", "`http://me:***@h` is invalid; expected http://HOST:PORT"),
        ("--otlp-endpoint http://h:99999", "`http://h:99999` is invalid; expected http://HOST:PORT"),
        ("--store host:6379", "--store: `host:6379` is invalid; expected redis://HOST:PORT"),
        ("--otlp-headers sesame", "--otlp-headers: expected NAME=VALUE"),
        ("--webhook-url sesame", "--webhook-url: expected http://"),
        ("--xds-headers sesame", "--xds-headers: expected NAME=VALUE"),
        (
            "--response-headers bogus",
            "--response-headers: `bogus` is invalid; expected one of off, ratelimit",
        ),
        ("inspect", "inspect"),
    ] {
        assert_refused(line, &[], expected);
    }
}

#[cfg(all(feature = "cli", feature = "regions"))]
#[test]
fn an_unknown_flag_or_variable_has_a_suggestion() {
    for (flag, meant) in [
        ("--grpc-adress", "did you mean `--grpc-address`?"),
        ("--grpc-tls-cert", "did you mean `--grpc-tls`?"),
        ("--rules-file", "did you mean `--rules`?"),
        ("--grpc-unix-socket", "expected one of those in"),
        ("--metrics-path", "expected one of those in"),
        ("--threads", "expected one of those in `tollgate --help`"),
        ("rules apply d --comment-text", "did you mean `--comment`?"),
        ("rules apply d --admin-ulr", "did you mean `--admin-url`?"),
        ("check d --colour", "expected one of those in `tollgate check --help`"),
    ] {
        let word = flag.rsplit(' ').next().expect("a word");
        assert_refused(&format!("{flag} sesame"), &[], &format!("{word}: unknown flag; {meant}"));
    }
    for (name, meant) in [
        ("TOLLGATE_STROE", "did you mean `TOLLGATE_STORE`?"),
        ("TOLLGATE_GRPC_ADDR", "did you mean `TOLLGATE_GRPC_ADDRESS`?"),
        ("TOLLGATE_COLOUR", "expected one of those in"),
        ("TOLLGATE_LOGLEVEL", "did you mean `TOLLGATE_LOG_LEVEL`?"),
        ("TOLLGATE_REDIS_URL", "did you mean `REDIS_URL`?"),
    ] {
        assert_refused("", &[(name, "1")], &format!("{name}: unknown setting; {meant}"));
    }
}

#[cfg(all(feature = "cli", feature = "regions"))]
#[test]
fn texts_are_trimmed_and_have_one_line() {
    let variables = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", " main,127.0.0.1:26379, 127.0.0.1:26380\n")];
    let shown = settings("", &variables).store.to_string();
    assert_eq!(shown, "redis+sentinel://127.0.0.1:26379,127.0.0.1:26380/main");
    let store = |text: &str| parse(["tollgate", "--store", text].map(OsString::from), []);
    let Ok(Command::Serve(settings)) = store(" redis://host:1\n") else { panic!("valid") };
    assert_eq!(settings.store.to_string(), "redis://host:1");
    let key = "-----BEGIN KEY-----\nsesame\n-----END KEY-----";
    for (flag, text) in
        [("store", "redis://ho\nst:1"), ("config", "a\tb"), ("grpc-tls", key), ("region", "a\u{85}b")]
    {
        let by_flag = parse(["tollgate".to_owned(), format!("--{flag}={text}")].map(OsString::from), []);
        let by_flag = by_flag.expect_err("refused").to_string();
        let name = variable(flag);
        let by_variable = refusal("", &[(&name, text)]);
        for (text, name) in [(by_flag, format!("--{flag}")), (by_variable, name)] {
            assert_eq!(text.lines().count(), 2, "{text}");
            assert!(
                text.contains(&format!("{name}: has a line break")) && !text.contains("sesame"),
                "{text}"
            );
        }
    }
    let malformed = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "main,a:1,,b:1")];
    assert_refused("", &malformed, "malformed server list");
}

#[test]
fn rules_that_are_not_below_the_directory_of_the_reference_are_reported() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(root.path().join("rules")).expect("created");
    let root = root.path().display().to_string();
    let variables = [("RUNTIME_ROOT", &*root), ("RUNTIME_SUBDIRECTORY", "rules"), ("STATSD_HOST", "h")];
    let notices = settings("", &variables).notices;
    assert!(
        notices.iter().any(|notice| notice.starts_with("RUNTIME_APPDIRECTORY is not set: ")),
        "{notices:?}"
    );
    let stated = [variables[0], variables[1], variables[2], ("RUNTIME_APPDIRECTORY", ".")];
    assert!(!settings("", &stated).notices.iter().any(|notice| notice.starts_with("RUNTIME_APP")));
}
