//! No variable of the reference is forgotten.

use tollgate::settings::{self, Command, Mapping, reference_variables};

use super::*;

/// The variables and their defaults, as they were found there.
fn found() -> BTreeMap<String, String> {
    let text = fs::read_to_string(project("tests/reference/variables.txt")).expect("a text");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
    pairs.map(|(name, default)| (name.to_owned(), default.to_owned())).collect()
}

#[test]
fn every_variable_of_the_reference_is_known_with_its_default() {
    let known = reference_variables().map(|known| (known.name.to_owned(), known.default.to_owned()));
    assert_eq!(known.collect::<BTreeMap<_, _>>(), found());
}

/// The line of the help that describes a flag.
fn help_of<'a>(help: &'a str, flag: &str) -> Option<&'a str> {
    let begins = [format!("\n      --{flag} "), format!("\n      --{flag}[")];
    let (_, rest) = begins.iter().find_map(|begin| help.split_once(begin))?;
    rest.split("\n      --").next()
}

#[test]
fn every_flag_for_a_variable_exists_and_its_help_names_the_variable() {
    let help = output_of(command().arg("--help"));
    for variable in reference_variables() {
        if let Some(flag) = variable.flag() {
            let flag_help = help_of(&help, flag).unwrap_or_else(|| panic!("no --{flag}"));
            let variables = flag_help.split_once("[env: ").expect("its variables").1;
            let variables = variables.split_once(']').expect("an end").0;
            let names: Vec<&str> = variables.split(',').map(str::trim).collect();
            assert!(names.contains(&variable.name), "{}: {names:?}", variable.name);
        }
        if let Mapping::Refused { unless, .. } = variable.mapping {
            assert!(help_of(&help, unless).is_some(), "no --{unless}");
        }
    }
}

#[test]
fn the_references_defaults_start_without_warnings() {
    let defaults = reference_variables().filter(|variable| !variable.default.is_empty());
    // Each alone says nothing where it does nothing, and is good for the flag that it sets where it does.
    for variable in defaults {
        let said = [
            ("USE_STATSD".into(), "true".into()),
            (variable.name.into(), variable.default.into()),
            ("REDIS_URL".into(), "/run/redis.sock".into()),
        ];
        let Ok(Command::Serve(settings)) = settings::parse(["tollgate".into()], said) else {
            panic!("{} does not start", variable.name);
        };
        let notices: Vec<_> = settings.notices.iter().filter(|_| variable.name != "DEBUG_HOST").collect();
        assert_eq!(notices, [""; 0], "{}", variable.name);
    }
}

#[test]
fn variables_without_effect_are_logged_once_by_name() {
    for variable in reference_variables() {
        let Mapping::NoEffect(reason) = variable.mapping else { continue };
        let other = ["true", "7s", "7"].into_iter().find(|value| variable.is_default(value) == Ok(false));
        let said = [
            (variable.name.into(), other.expect("another value").into()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT".into(), "http://localhost:4317".into()),
        ];
        let Ok(Command::Serve(settings)) = settings::parse(["tollgate".into()], said) else {
            panic!("{} does not start", variable.name);
        };
        assert_eq!(settings.notices, [format!("{} has no effect: {reason}", variable.name)]);
    }
}

#[test]
fn refused_variables_start_once_their_flag_is_set() {
    let mut refused = BTreeSet::new();
    for variable in reference_variables() {
        let Mapping::Refused { unless, reason } = variable.mapping else { continue };
        refused.insert(variable.name);
        let value = if variable.default == "false" { "true" } else { "memcache" };
        let said = || [(variable.name.into(), value.into())];
        let error = settings::parse(["tollgate".into()], said()).expect_err("refused").to_string();
        assert_eq!(error.lines().skip(1).collect::<Vec<_>>(), [format!("  {}: {reason}", variable.name)]);
        let flag = format!("--{unless}=memory").into();
        assert!(settings::parse(["tollgate".into(), flag], said()).is_ok(), "{}", variable.name);
    }
    assert!(refused.contains("BACKEND_TYPE"));
}

#[test]
fn an_invalid_value_is_named_and_shown() {
    for (name, bad) in [
        ("PORT", "http"),
        ("GRPC_PORT", "70000"),
        ("GRPC_MAX_CONNECTION_AGE", "1 day"),
        ("GRPC_SERVER_USE_TLS", "yes"),
        ("LOG_LEVEL", "verbose"),
        ("RUNTIME_IGNOREDOTFILES", "on"),
        ("REDIS_POOL_SIZE", "many"),
        ("REDIS_TIMEOUT", "10"),
        ("REDIS_PERSECOND", "second"),
        ("REDIS_TLS", "maybe"),
        ("REDIS_SOCKET_TYPE", "udp"),
        ("REDIS_TYPE", "ring"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "some"),
        ("NEAR_LIMIT_RATIO", "80"),
        ("USE_PROMETHEUS", "maybe"),
        ("TRACING_ENABLED", "maybe"),
        ("TRACING_SAMPLING_RATE", "all"),
        ("EXPIRATION_JITTER_MAX_SECONDS", "5m"),
    ] {
        let said = [("REDIS_URL".into(), "redis:6379".into()), (name.into(), bad.into())];
        let text = settings::parse(["tollgate".into()], said).expect_err(name).to_string();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 1, "{name}: {text}");
        let (named, reason) = lines[0].trim().split_once(": ").expect("a reason");
        assert!(named.split(" with ").any(|part| part == name), "{name}: {text}");
        assert!(reason.starts_with('`') && reason.contains(bad), "{text}");
    }
}

#[test]
fn rules_in_a_misnamed_file_stop_the_start_and_name_the_file() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let folder = root.path().join("config");
    fs::create_dir(&folder).expect("created");
    fs::copy(project("tests/reference/config/basic/rules/rules.yaml"), folder.join("limits"))
        .expect("copied");
    let mut program = command();
    program.env_clear().env("RUNTIME_ROOT", root.path()).env("TOLLGATE_STORE", "memory");
    let Ended { code, stderr: text, .. } = ended(&mut program);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("limits: no file here ends in .yaml or .yml"), "{text}");
}
