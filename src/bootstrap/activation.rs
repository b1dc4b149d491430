//! Activation of rules: one swap for every valid version, whatever its source.

use std::{fmt::Display, path::PathBuf, sync::Arc, thread, time::Duration};

use tokio::task::spawn_blocking;
use tollgate_control::{RulesStatus, Version, bounds::truncated, metrics, metrics::ConfigLoad};
use tollgate_core::clock::Clock;
use tollgate_limiter::ActiveRules;
use tollgate_rules::{
    Rules,
    config::{self, Fingerprint, LoadError, Loaded, Overlay, OverlaySlot},
};
use tollgate_runtime::log_budget::LogBudget;
use tollgate_store::redis::recheck_bans;

use super::removal::{EmptiedOverlay, Removal};
use crate::{
    readiness::{Phase, Readiness},
    settings::RulesSettings,
    xds::Rejected,
};

/// Interval of the polls for requests that still use the previous rules.
const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of those polls. Rules in use for longer are kept until the next version is activated.
const RELEASE_POLLS: usize = 50;

/// Log lines on rules that a control plane pushed: one that pushes without end would fill the log.
static PUSH_LINES: LogBudget = LogBudget::new(32, Duration::from_secs(5));

/// Activates valid rules, and keeps the active ones when new ones are invalid.
#[derive(Clone, Debug)]
pub(super) struct Activator {
    pub(super) rules: Arc<ActiveRules>,
    pub(super) readiness: Readiness,
    pub(super) status: RulesStatus,
    directory: PathBuf,
    /// Whether rules and overlays may become empty.
    allow_empty: bool,
}

impl Activator {
    pub(super) fn new(readiness: Readiness, settings: &RulesSettings) -> Self {
        let status = RulesStatus::default();
        status.update(|state| state.source = settings.source);
        let (directory, allow_empty) = (settings.directory.clone(), settings.options.allow_empty);
        Self { rules: Arc::default(), readiness, status, directory, allow_empty }
    }

    /// Loads and activates the rules of a directory at startup, and returns their fingerprint. Invalid rules are an error
    /// unless the settings allow starting without.
    pub(super) fn load_directory(&self, settings: &RulesSettings) -> Result<Fingerprint, LoadError> {
        // Rules without their overlay are others: not even to start without rules.
        config::load_overlay_finished(settings.overlay.as_deref(), &settings.options)?;
        let loaded = config::load_finished(&self.directory, &settings.options);
        metrics::config_load(loaded.is_ok());
        match loaded {
            Ok(loaded) => {
                let fingerprint = loaded.fingerprint;
                self.activate(loaded, None, &self.directory.display());
                Ok(fingerprint)
            }
            Err(error) if settings.start_without_rules => {
                tracing::error!(%error, "not ready: no valid rules");
                self.record_problem(&error);
                Ok(error.fingerprint())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether active rules are missing in `rules`.
    pub(super) fn lacks_active_rules(&self, rules: &Rules) -> bool {
        self.rules.load().is_some_and(|active| active.missing_in(rules) > 0)
    }

    /// Activates rules that the directory watcher loaded. Blocks; not for async threads.
    pub(super) fn activate_changed(&self, loaded: Result<Loaded, LoadError>) {
        let removal = loaded.as_ref().ok().and_then(|loaded| Removal::by(loaded, &*self.rules.load()?));
        metrics::count_load(match (&loaded, &removal) {
            (Ok(_), None) => ConfigLoad::Success,
            (Ok(_), Some(_)) => ConfigLoad::Refused,
            (Err(LoadError::Unfinished { .. }), _) => ConfigLoad::Unfinished,
            (Err(_), _) => ConfigLoad::Error,
        });
        match (loaded, removal) {
            (Ok(_), Some(removal)) => {
                tracing::warn!(%removal, keeping = self.active_rules(), "refused removal of most rules");
                self.record_problem(&removal);
            }
            (Ok(loaded), None) => {
                let rules = self.activate(loaded, None, &self.directory.display());
                tracing::info!(rules, directory = %self.directory.display(), "changed rules active");
                self.release_previous();
            }
            (Err(error @ LoadError::Unfinished { .. }), _) => {
                tracing::warn!(%error, keeping = self.active_rules(), "rule files still open for writing");
                self.record_problem(&error);
            }
            (Err(error), _) => {
                tracing::error!(%error, keeping = self.active_rules(), "changed rules are invalid");
                self.record_problem(&error);
            }
        }
    }

    /// Activates a version that became current in the control store. Blocks; not for async threads. The caller records the
    /// problem of an invalid version in the status.
    pub(super) fn activate_version(&self, loaded: Result<Loaded, LoadError>, version: &Version) {
        metrics::config_load(loaded.is_ok());
        let Version { number, author, .. } = version;
        match loaded {
            Ok(loaded) => {
                let rules = self.activate(loaded, Some(*number), &format_args!("version {number}"));
                tracing::info!(rules, version = number, %author, "rules version active");
                self.release_previous_in_background();
            }
            Err(error) => {
                let keeping = self.active_rules();
                tracing::error!(%error, version = number, %author, keeping, "rules version is invalid");
            }
        }
    }

    /// Activates rules from the xDS control plane. Blocks; not for async threads.
    pub(super) fn activate_pushed(&self, pushed: Result<Loaded, Rejected>) {
        metrics::config_load(pushed.is_ok());
        match pushed {
            Ok(loaded) => {
                let before = self.rules.load().map_or(0, |rules| rules.rule_count());
                match self.activate(loaded, None, &"the xDS control plane") {
                    0 if before > 0 => {
                        tracing::warn!(removed = before, "control plane removed all rules");
                    }
                    rules if rules.saturating_mul(2) < before => {
                        tracing::warn!(rules, before, "control plane removed most rules");
                    }
                    rules => {
                        if let Some(suppressed) = PUSH_LINES.take() {
                            tracing::info!(rules, suppressed, "rules of the control plane active");
                        }
                    }
                }
                self.release_previous_in_background();
            }
            Err(error) => {
                if let Some(suppressed) = PUSH_LINES.take() {
                    let keeping = self.active_rules();
                    tracing::error!(%error, keeping, suppressed, "control plane sent invalid rules");
                }
                self.record_problem(&error);
            }
        }
    }

    /// Takes over an overlay that its watcher loaded. Returns whether the rules are to be compiled again.
    pub(super) fn take_overlay(&self, slot: &OverlaySlot, loaded: Result<Overlay, LoadError>) -> bool {
        match loaded {
            Ok(overlay) if !self.allow_empty && slot.get().is_some_and(|active| overlay.empties(&active)) => {
                metrics::count_load(ConfigLoad::Refused);
                tracing::warn!("refused an emptied overlay; keeping the previous one");
                self.record_problem(&EmptiedOverlay);
                false
            }
            Ok(overlay) => {
                tracing::info!(fingerprint = %overlay.fingerprint(), "changed overlay read");
                slot.set(overlay);
                true
            }
            Err(error) => {
                metrics::config_load(false);
                tracing::error!(%error, "changed overlay is invalid; keeping the previous one");
                self.record_problem(&error);
                false
            }
        }
    }

    /// Handles a control plane that is connected and sends no rules: unless rules are `required`, the process becomes ready
    /// without.
    pub(super) fn handle_empty_control_plane(&self, required: bool) {
        if self.rules.load().is_none() && self.readiness.phase() == Phase::Starting {
            tracing::warn!("control plane sent no rules for this node");
            if !required {
                self.readiness.rules_loaded();
            }
        }
    }

    /// Log value: the rules that stay active after a rejected change.
    fn active_rules(&self) -> &'static str {
        match self.rules.load() {
            Some(_) => "previous rules",
            None => "no rules",
        }
    }

    fn record_problem(&self, error: &dyn Display) {
        let problem = truncated(error.to_string());
        self.status.update(|state| state.problem = Some(problem.clone()));
    }

    /// Frees the previous rules on another thread, so that the next activation does not wait.
    fn release_previous_in_background(&self) {
        let activator = self.clone();
        spawn_blocking(move || activator.release_previous());
    }

    /// Frees the previous rules once unused, so that two versions are not held in memory for long.
    fn release_previous(&self) {
        for _ in 0..RELEASE_POLLS {
            if self.rules.drop_unused() {
                return;
            }
            thread::sleep(RELEASE_POLL_INTERVAL);
        }
    }

    /// Activates rules from `origin`, and returns their number.
    fn activate(&self, loaded: Loaded, version: Option<u64>, origin: &dyn Display) -> usize {
        let fingerprint = loaded.whole_fingerprint();
        if !loaded.warnings.problems().is_empty() {
            tracing::warn!(%origin, warnings = %loaded.warnings, "suspicious rules");
        }
        let rules = Arc::new(loaded.rules);
        if let Some(former) = self.rules.load() {
            rules.succeed(&former, Clock::System.now());
        }
        let count = rules.rules().count();
        if count == 0 && self.rules.load().is_none() {
            tracing::warn!(%origin, "no rules: every request passes");
        }
        metrics::active_rules(rules.domains().count(), count);
        if let Some(laid) = loaded.overlay {
            metrics::overlay(laid.patterns, laid.unmatched);
        }
        self.rules.replace(rules);
        metrics::rule_overrides(&*self.rules);
        recheck_bans();
        let (fingerprint, since_ms) = (fingerprint.to_string(), Clock::System.now().as_micros() / 1_000);
        metrics::rules_version(version, since_ms);
        self.status.update(|state| {
            state.fingerprint.clone_from(&fingerprint);
            (state.version, state.since_ms, state.problem) = (version, since_ms, None);
        });
        self.readiness.rules_loaded();
        count
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use tollgate_control::RulesSource;
    use tollgate_rules::Limit;

    fn settings(directory: &Path) -> RulesSettings {
        RulesSettings {
            source: RulesSource::Directory,
            directory: directory.into(),
            overrides_file: None,
            xds: None,
            overlay: None,
            options: config::Options::default(),
            start_without_rules: false,
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
        assert!(
            problem.starts_with("51 of 100 active rules are missing in the changed files; "),
            "{problem}"
        );
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
        let options = config::Options { allow_empty: true, ..settings.options };
        assert!(take(&RulesSettings { options, ..settings.clone() }, None));
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
        let options = config::Options::default();
        let settings = RulesSettings {
            source: RulesSource::Directory,
            directory: directory.path().into(),
            overrides_file: None,
            xds: None,
            overlay: None,
            options,
            start_without_rules: false,
        };
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
        assert!(
            changes("sliding_window", "minute"),
            "after another algorithm, the window may be another one"
        );
    }
}
