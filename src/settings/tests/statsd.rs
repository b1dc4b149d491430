//! Settings of the StatsD exporter, by flags and by variables of the reference.

use tollgate_telemetry::statsd::{StatsdFormat, StatsdSettings, Target};

use super::*;

/// Words are separated by spaces; `_` is a space in a word.
fn statsd(line: &str, variables: &[(&str, &str)]) -> Result<StatsdSettings, SettingsError> {
    let words = line.split_whitespace().map(|word| word.replace('_', " "));
    let words = std::iter::once("tollgate".to_owned()).chain(words).map(OsString::from);
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match parse(words, variables)? {
        Command::Serve(settings) => Ok(settings.statsd),
        #[cfg(feature = "cli")]
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_sent_by_default_and_a_flag_wins_over_what_the_reference_has() {
    assert!(statsd("", &[]).expect("settings").server.is_none());
    let of_reference = [
        ("USE_DOG_STATSD", "true"),
        ("STATSD_HOST", "agent"),
        ("EXTRA_TAGS", "a:b"),
        ("STATS_FLUSH_INTERVAL", "3s"),
    ];
    let there = statsd("", &of_reference).expect("settings");
    let server = there.server.expect("a server");
    assert_eq!(server.target, Target::Udp("agent:8125".to_owned()));
    assert_eq!((server.format, there.interval), (StatsdFormat::Dogstatsd, Duration::from_secs(3)));
    assert_eq!(there.tags, Some(vec![("a".to_owned(), "b".to_owned())]));
    let line = "--statsd unix:///s --statsd-tags c:d";
    let settings = statsd(line, &of_reference[1..]).expect("settings");
    let server = settings.server.expect("a server");
    assert_eq!(server.target, Target::Unix("/s".into()));
    assert_eq!((server.format, settings.interval), (StatsdFormat::Plain, Duration::from_secs(3)));
    assert_eq!(settings.tags, Some(vec![("c".to_owned(), "d".to_owned())]));
    let settings = statsd(line, &[("DISABLE_STATS", "true")]).expect("settings");
    assert!(settings.server.is_some(), "the flag is stronger");
}

#[test]
fn an_error_names_the_flag_or_variable_that_it_is_about() {
    let mogrifier = |pattern, name| {
        [
            ("USE_DOG_STATSD", "true"),
            ("USE_DOG_STATSD_MOGRIFIERS", "X"),
            ("DOG_STATSD_MOGRIFIER_X_PATTERN", pattern),
            ("DOG_STATSD_MOGRIFIER_X_NAME", name),
        ]
    };
    for (line, variables, expected) in [
        ("--statsd agent:8125", &[][..], "--statsd: `agent:8125` is invalid; expected udp://HOST:PORT"),
        (
            "--statsd udp://a:1 --statsd-rewrite a_b",
            &[],
            "--statsd-rewrite: requires a dogstatsd+ URL in --statsd",
        ),
        (
            "",
            &[("STATSD_PORT", "none")],
            "STATSD_PORT: `tcp://localhost:none` is invalid; expected udp://HOST:PORT",
        ),
        ("", &[("EXTRA_TAGS", "a")], "EXTRA_TAGS: `a` is invalid; expected KEY:VALUE"),
        ("", &[("STATS_FLUSH_INTERVAL", "10")], "STATS_FLUSH_INTERVAL: `10` is invalid; expected a duration"),
        (
            "",
            &[("STATS_FLUSH_INTERVAL", "0")],
            "STATS_FLUSH_INTERVAL: `0` is invalid; expected at least 100ms",
        ),
        ("--statsd-interval 1ns", &[], "--statsd-interval: `1ns` is invalid; expected at least 100ms"),
        ("--statsd-interval 99ms", &[], "--statsd-interval: `99ms` is invalid; expected at least 100ms"),
        ("", &mogrifier("(", "a"), "DOG_STATSD_MOGRIFIER_X: `( a `: the pattern is invalid"),
        ("", &mogrifier("(a)", "$2"), "DOG_STATSD_MOGRIFIER_X: `(a) $2 `: the pattern has no group $2"),
    ] {
        let error = statsd(line, variables).expect_err("wrong").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let rewrites = |line: &str, variables: &[(&str, &str)]| {
        let settings = statsd(line, variables).expect("settings");
        settings.rewrites.iter().flatten().count()
    };
    let lines = [("TOLLGATE_STATSD_REWRITE", "a b\nc d e:f"), ("USE_DOG_STATSD", "true")];
    assert_eq!(rewrites("", &lines), 2);
    assert_eq!(rewrites("--statsd-rewrite a_b --statsd-rewrite c_d", &lines), 2);
}
