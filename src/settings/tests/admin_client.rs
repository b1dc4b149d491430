//! Parsing of the commands that call the admin API.

use std::{ffi::OsString, path::Path, time::Duration};

use tollgate_cli::flags::*;
use tollgate_control::{ListPair, SwitchMode};

use crate::settings::{Command, SettingsError, parse};

fn read(line: &str, variables: &[(&str, &str)]) -> Result<AdminClientSettings, SettingsError> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match parse(std::iter::once("tollgate").chain(line.split(' ')).map(OsString::from), variables)? {
        Command::Cli(command) => match *command {
            tollgate_cli::Verb::AdminClient(settings) => Ok(*settings),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn command(line: &str) -> AdminCommand {
    read(line, &[]).expect("accepted").command
}

fn is_refused(line: &str) -> bool {
    read(line, &[]).is_err_and(|error| error.exit_code() == 2)
}

#[test]
fn the_admin_url_is_a_flag_before_or_after_the_verb_or_a_variable() {
    let url = |line: &str, variable: &str| {
        let settings = read(line, &[("TOLLGATE_ADMIN_URL", variable)]).expect("accepted");
        settings.connection.admin_url
    };
    assert_eq!(url("rules list", ""), "http://127.0.0.1:6070");
    assert_eq!(url("rules list", "https://b"), "https://b");
    assert_eq!(url("record --admin-url http://a:1 list", "https://b"), "http://a:1");
    assert_eq!(url("record list --admin-url=http://a:1", "https://b"), "http://a:1");
    let wrong = read("rules list", &[("TOLLGATE_ADMIN_URL", "http://:sesame@a")]).expect_err("refused");
    assert!(
        wrong.to_string().contains("TOLLGATE_ADMIN_URL: `http://:***@a` is invalid; expected"),
        "{wrong}"
    );
    assert!(!wrong.to_string().contains("sesame"), "{wrong}");
    // The server does not refuse the variable either.
    assert!(parse(["tollgate".into()], [("TOLLGATE_ADMIN_URL".into(), "http://a:1".into())]).is_ok());
}

#[test]
fn credentials_of_a_caller_are_complete_and_in_files() {
    let settings = read("rules list --cert c,k --json", &[]).expect("accepted");
    assert!(settings.connection.cert.is_some() && settings.connection.json);
    assert!(is_refused("rules list --cert c"));
    assert!(is_refused("rules list --cert ,k"));
    assert!(is_refused("rules list --token sesame"));
    assert!(is_refused("rules list --author a\nb"));
}

#[test]
fn a_directory_is_distinguished_from_a_version_by_its_name() {
    let compared = |what| match command(&format!("rules diff {what}")) {
        AdminCommand::Rules(RulesCommand::Diff { what, against: None }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(compared("12"), DiffSource::Version(VersionSelector::Number(12)));
    assert_eq!(compared("current"), DiffSource::Version(VersionSelector::Current));
    assert_eq!(compared("./12"), DiffSource::Directory("./12".into()));
    assert!(is_refused("rules diff 12 --against latest"));
}

#[test]
fn a_new_version_has_a_comment_and_an_optional_base() {
    let based = |more| match command(&format!("rules apply d --comment why{more}")) {
        AdminCommand::Rules(RulesCommand::Apply { directory, comment, based_on, force: false }) => {
            assert_eq!((directory.as_path(), &*comment), (Path::new("d"), "why"));
            based_on
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(based(""), None);
    assert_eq!(based(" --based-on none"), Some(None));
    assert_eq!(based(" --based-on 7"), Some(Some(7)));
    assert!(is_refused("rules apply d"), "without a comment");
    assert!(is_refused("rules rollback current"));
}

#[test]
fn a_change_of_a_record_needs_a_reason() {
    match command("record allow --domain * ip=10.0.0.0/8,k=a* --reason why --for 1h --base 0") {
        AdminCommand::Record(RecordCommand::Allow(EntryFlags { descriptor, end, change, .. })) => {
            assert_eq!(descriptor.0[1], ListPair::pattern("k", "a*"));
            assert_eq!((end.lifetime, change.base), (Some(Duration::from_secs(3600)), Some(0)));
        }
        other => panic!("{other:?}"),
    }
    match command("record switch shadow --reason why --domain d --rule a.b --dry-run") {
        AdminCommand::Record(RecordCommand::Switch {
            mode: SwitchMode::Shadow, rule, end, change, ..
        }) => {
            assert_eq!((&*rule.rule, end.lifetime, change.put.dry_run), ("a.b", None, true));
        }
        other => panic!("{other:?}"),
    }
    for refused in [
        "record deny --domain d k=v",
        "record remove ../versions",
        "record switch on --reason why --domain d --rule a.b",
        "record switch off --domain d --rule a.b",
        "record ramp --reason why --domain d --rule a.b --steps 1 --over 1h --max-denied 5 --for 1h",
        "counters refund --domain d k=v --hits 0",
    ] {
        assert!(is_refused(refused), "{refused}");
    }
}
