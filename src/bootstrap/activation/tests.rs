//! Activation of rules and overlays from a directory.

use std::time::Duration;

use tollgate_directory::Watcher;
use tollgate_rules::{Limit, config};

use super::*;

/// An activator of the rules of a directory.
struct TestActivation {
    directory: tempfile::TempDir,
    settings: RulesSettings,
    activator: Activator,
}

fn activation() -> TestActivation {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = tollgate_fixtures::settings(&format!("--config {}", directory.path().display()));
    let activator = Activator::new(Readiness::new(0), &settings);
    TestActivation { directory, settings, activator }
}

impl TestActivation {
    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.directory.path().join(file), text).expect("written");
    }

    fn remove(&self, file: &str) {
        std::fs::remove_file(self.directory.path().join(file)).expect("removed");
    }

    fn files(&self) -> Result<SourceFiles, DirectoryError> {
        tollgate_directory::read(self.directory.path())
    }

    /// Loads the directory, and returns the active rules.
    fn load(&self, options: Options) -> Arc<Rules> {
        self.activator.take_files(self.files(), true, options);
        self.activator.rules.load().expect("active")
    }

    /// Loads another file, and returns the active rules.
    fn change(&self, text: &str) -> Arc<Rules> {
        self.write("rules.yaml", text);
        self.load(self.settings.options)
    }
}

fn rules(count: usize) -> String {
    let rule = |rule| format!("- {{key: k{rule}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n");
    format!("domain: web\ndescriptors:\n{}", (0..count).map(rule).collect::<String>())
}

#[test]
fn a_change_that_removes_most_rules_is_refused_unless_it_is_meant() {
    let test = activation();
    let change = |text: &str| test.change(text).rule_count();
    assert_eq!(change(&rules(100)), 100);
    for count in [0, 1, 10, 49] {
        let text = if count == 0 { "domain: web\n".to_owned() } else { rules(count) };
        assert_eq!(change(&text), 100, "{count} rules");
    }
    let problem = test.activator.status.now().problem.clone().expect("a problem");
    assert!(problem.starts_with("51 of 100 active rules are missing in the changed files; "), "{problem}");
    assert_eq!(change(&rules(100).replace("web", "other")), 100);
    assert!(test.activator.rules.load().is_some_and(|rules| rules.domain("web").is_some()));
    assert_eq!(change(&rules(50)), 50);
    assert_eq!(test.activator.status.now().problem.clone(), None);
    test.write("rules.yaml", &rules(9));
    let allowing = Options { allow_empty: true, ..test.settings.options };
    assert_eq!(test.load(allowing).rule_count(), 9);

    test.write(".allow-empty", "");
    assert_eq!(change("domain: web\n"), 0);
    assert_eq!(change(&rules(1)), 1);
    test.remove("rules.yaml");
    assert_eq!(test.load(test.settings.options).rule_count(), 0);
}

#[test]
fn a_change_that_removes_a_rule_waits_until_the_directory_is_quiet() {
    let test = activation();
    test.change(&rules(3));
    for (count, reply) in [(4, Reply::Taken), (3, Reply::Early { awaiting: "files that remove rules" })] {
        test.write("rules.yaml", &rules(count));
        assert_eq!(test.activator.take_files(test.files(), false, test.settings.options), reply);
        assert_eq!(test.activator.rules.load().map(|rules| rules.rule_count()), Some(4));
    }
    assert_eq!(test.load(test.settings.options).rule_count(), 3);
}

#[test]
fn a_few_rules_may_be_renamed_but_not_removed() {
    let test = activation();
    let change = |text: &str| {
        test.change(text);
        test.activator.status.now().problem.is_none()
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
    let test = activation();
    let stated = "domain: web\ndescriptors:\n- {key: k, shadow_mode: true}\n";
    let slot = OverlaySlot::leaked(test.directory.path().to_owned());
    let take = |settings: &RulesSettings, content: Option<&str>| {
        match content {
            Some(content) => test.write("overlay.yaml", content),
            None => test.remove("overlay.yaml"),
        }
        let activator = Activator::new(Readiness::new(0), settings);
        activator.take_overlay(slot, test.files())
    };
    let settings = &test.settings;
    assert!(take(settings, Some("domain: web\n")), "nothing is lost");
    assert!(take(settings, Some(stated)));
    assert!(!take(settings, Some("domain: web\n")), "the file is emptied");
    assert!(!take(settings, None), "the directory is emptied");
    assert!(take(settings, Some("domain: web\ndefaults: {algorithm: token_bucket}\n")));
    let mut allowing = settings.clone();
    allowing.options.allow_empty = true;
    assert!(take(&allowing, None));
    assert!(take(settings, Some(stated)));
    test.write(".allow-empty", "");
    assert!(take(settings, None));
}

#[test]
fn invalid_rules_leave_the_valid_ones_active() {
    let test = activation();
    test.write("rules.yaml", "domain: [");
    assert!(test.activator.load_directory(&test.settings).is_err());
    assert_eq!(test.activator.readiness.phase(), Phase::Starting);
    let good = test.change("domain: web\ndescriptors: []\n");
    assert_eq!(test.activator.readiness.phase(), Phase::Ready);
    assert!(Arc::ptr_eq(&test.change("domain: ["), &good));
    assert_eq!(test.activator.readiness.phase(), Phase::Ready);
}

#[test]
fn a_watched_directory_recovers_from_an_invalid_version() {
    let test = activation();
    let (activator, options) = (test.activator.clone(), test.settings.options);
    let (taken, versions) = std::sync::mpsc::channel();
    let _watcher = Watcher::spawn(test.directory.path(), false, None, move |files, is_quiet| {
        let is_valid =
            files.as_ref().is_ok_and(|files| config::compile_files(files.clone(), options).is_ok());
        let reply = activator.take_files(files, is_quiet, options);
        // The test may have ended.
        let _ = taken.send(is_valid);
        reply
    });
    let wait_for = |is_wanted: bool| {
        while versions.recv_timeout(Duration::from_secs(60)).expect("a version") != is_wanted {}
    };
    test.write("rules.yaml", &rules(1));
    while test.activator.rules.load().is_none_or(|rules| rules.rule_count() != 1) {
        wait_for(true);
    }
    test.write("rules.yaml", "domain: [");
    wait_for(false);
    assert_eq!(test.activator.rules.load().map(|rules| rules.rule_count()), Some(1));
    test.write("rules.yaml", &rules(2));
    while test.activator.rules.load().is_none_or(|rules| rules.rule_count() != 2) {
        wait_for(true);
    }
}

#[test]
fn a_changed_sliding_window_is_decided_by_the_time_of_the_change() {
    let test = activation();
    let changes = |algorithm: &str, unit: &str| {
        let limit = format!("{{unit: {unit}, requests_per_unit: 1, algorithm: {algorithm}}}");
        let yaml = format!("domain: web\ndescriptors:\n- key: k\n  rate_limit: {limit}\n");
        let rules = test.change(&yaml);
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
