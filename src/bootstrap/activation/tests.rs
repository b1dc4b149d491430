//! Activation of rules and overlays from a directory.

use std::{ffi::OsString, path::Path};

use super::*;
use crate::settings::{self, Command};
use tollgate_rules::Limit;

fn settings(directory: &Path) -> RulesSettings {
    let words = [OsString::from("tollgate"), "--config".into(), directory.into()];
    match settings::parse(words, []) {
        Ok(Command::Serve(settings)) => settings.rules,
        other => panic!("{other:?}"),
    }
}

fn rules(count: usize) -> String {
    let rule = |rule| format!("- {{key: k{rule}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n");
    format!("domain: web\ndescriptors:\n{}", (0..count).map(rule).collect::<String>())
}

#[test]
fn a_change_that_removes_most_rules_is_refused_unless_it_is_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.yaml");
    let settings = settings(directory.path());
    let activator = Activator::new(Readiness::new(), &settings);
    let change = |text: &str, options| {
        std::fs::write(&file, text).expect("written");
        activator.activate_changed(config::load(directory.path(), &options));
        activator.rules.load().expect("active").rule_count()
    };
    assert_eq!(change(&rules(100), settings.options), 100);
    for count in [0, 1, 10, 49] {
        let text = if count == 0 { "domain: web\n".to_owned() } else { rules(count) };
        assert_eq!(change(&text, settings.options), 100, "{count} rules");
    }
    let problem = activator.status.now().problem.clone().expect("a problem");
    assert!(problem.starts_with("51 of 100 active rules are missing in the changed files; "), "{problem}");
    assert_eq!(change(&rules(100).replace("web", "other"), settings.options), 100);
    assert!(activator.rules.load().is_some_and(|rules| rules.domain("web").is_some()));
    assert_eq!(change(&rules(50), settings.options), 50);
    assert_eq!(activator.status.now().problem.clone(), None);
    assert_eq!(change(&rules(9), config::Options { allow_empty: true, ..settings.options }), 9);

    std::fs::write(directory.path().join(".allow-empty"), "").expect("written");
    assert_eq!(change("domain: web\n", settings.options), 0);
    assert_eq!(change(&rules(1), settings.options), 1);
    std::fs::remove_file(&file).expect("removed");
    activator.activate_changed(config::load(directory.path(), &settings.options));
    assert_eq!(activator.rules.load().expect("active").rule_count(), 0);
}

#[test]
fn a_few_rules_may_be_renamed_but_not_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.yaml");
    let settings = settings(directory.path());
    let activator = Activator::new(Readiness::new(), &settings);
    let change = |text: &str| {
        std::fs::write(&file, text).expect("written");
        activator.activate_changed(config::load(directory.path(), &settings.options));
        activator.status.now().problem.is_none()
    };
    for (count, kept, lost) in [(1, 1, 0), (3, 2, 1), (9, 5, 4)] {
        assert!(change(&rules(count)), "{count} rules");
        let fewer = if lost == 0 { "domain: web\n".to_owned() } else { rules(lost) };
        assert!(!change(&fewer), "{lost} of {count} rules");
        assert!(change(&rules(count).replace("key: k", "key: renamed")), "{count} rules");
        assert!(change(&rules(kept)), "{kept} others for {count} rules");
    }
    assert!(change(&rules(10)));
    assert!(!change(&rules(10).replace("key: k", "key: renamed")));
}

#[test]
fn an_overlay_that_becomes_empty_is_refused_unless_that_is_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("overlay.yaml");
    let stated = "domain: web\ndescriptors:\n- {key: k, shadow_mode: true}\n";
    let slot = OverlaySlot::leaked();
    let take = |settings: &RulesSettings, content: Option<&str>| {
        match content {
            Some(content) => std::fs::write(&file, content).expect("written"),
            None => std::fs::remove_file(&file).expect("removed"),
        }
        let activator = Activator::new(Readiness::new(), settings);
        activator.take_overlay(slot, Overlay::load(directory.path()))
    };
    let settings = settings(directory.path());
    assert!(take(&settings, Some("domain: web\n")), "nothing is lost");
    assert!(take(&settings, Some(stated)));
    assert!(!take(&settings, Some("domain: web\n")), "the file is emptied");
    assert!(!take(&settings, None), "the directory is emptied");
    assert!(take(&settings, Some("domain: web\ndefaults: {algorithm: token_bucket}\n")));
    let mut allowing = settings.clone();
    allowing.options.allow_empty = true;
    assert!(take(&allowing, None));
    assert!(take(&settings, Some(stated)));
    std::fs::write(directory.path().join(".allow-empty"), "").expect("written");
    assert!(take(&settings, None));
}

#[test]
fn invalid_rules_leave_the_valid_ones_active() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.yaml");
    let settings = settings(directory.path());
    let activator = Activator::new(Readiness::new(), &settings);

    std::fs::write(&file, "domain: [").expect("written");
    assert!(activator.load_directory(&settings).is_err());
    assert_eq!(activator.readiness.phase(), Phase::Starting);

    std::fs::write(&file, "domain: web\ndescriptors: []\n").expect("written");
    activator.activate_changed(config::load(directory.path(), &settings.options));
    let good = activator.rules.load().expect("active");
    assert_eq!(activator.readiness.phase(), Phase::Ready);

    std::fs::write(&file, "domain: [").expect("written");
    activator.activate_changed(config::load(directory.path(), &settings.options));
    assert!(Arc::ptr_eq(&activator.rules.load().expect("active"), &good));
    assert_eq!(activator.readiness.phase(), Phase::Ready);
}

#[test]
fn a_changed_sliding_window_is_decided_by_the_time_of_the_change() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings(directory.path());
    let activator = Activator::new(Readiness::new(), &settings);
    let changes = |algorithm: &str, unit: &str| {
        let limit = format!("{{unit: {unit}, requests_per_unit: 1, algorithm: {algorithm}}}");
        let yaml = format!("domain: web\ndescriptors:\n- key: k\n  rate_limit: {limit}\n");
        std::fs::write(directory.path().join("rules.yaml"), yaml).expect("written");
        activator.activate_changed(config::load(directory.path(), &settings.options));
        let rules = activator.rules.load().expect("active");
        let rule = Arc::clone(rules.rules().next().expect("a rule"));
        let Limit::Quota { policy, .. } = &rule.limit else { panic!("a quota") };
        rule.policy() != Some(*policy)
    };
    assert!(!changes("sliding_window", "minute"), "the first rules change nothing");
    assert!(!changes("sliding_window", "minute"));
    assert!(changes("sliding_window", "hour"));
    assert!(changes("sliding_window", "hour"), "the time of the change stays known");
    assert!(!changes("fixed_window", "minute"));
    assert!(changes("sliding_window", "minute"), "after another algorithm, the window may be another one");
}
