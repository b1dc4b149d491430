//! How versions of the configuration take effect.

use std::{fmt::Display, path::PathBuf, sync::Arc, thread, time::Duration};

use tokio::task::spawn_blocking;

use crate::{
    clock::Clock,
    config::{self, Fingerprint, LoadError, Loaded},
    control::{RulesStatus, Version, bounds::shortened},
    metrics,
    readiness::{Phase, Readiness},
    rules::Snapshot,
    settings::RulesSettings,
    xds::Refused,
};

/// Between two looks for whether requests still use the rules before.
const LOOK: Duration = Duration::from_millis(20);
/// Looks for that. What is used for longer is kept until the next version comes.
const LOOKS: usize = 50;

/// Puts good versions in force, and keeps the old one when the new one is bad.
#[derive(Clone, Debug)]
pub(super) struct Reloader {
    pub(super) rules: Arc<Snapshot>,
    pub(super) readiness: Readiness,
    pub(super) status: RulesStatus,
    directory: PathBuf,
}

impl Reloader {
    pub(super) fn new(readiness: Readiness, settings: &RulesSettings) -> Self {
        let status = RulesStatus::default();
        status.update(|state| state.source = settings.source);
        Self { rules: Arc::default(), readiness, status, directory: settings.directory.clone() }
    }

    /// Loads the first version of a directory, and says which one that was. A bad one is an error unless the settings
    /// say otherwise.
    pub(super) fn load_first(&self, settings: &RulesSettings) -> Result<Fingerprint, LoadError> {
        let loaded = config::load(&self.directory, &settings.options);
        metrics::config_load(loaded.is_ok());
        match loaded {
            Ok(loaded) => {
                let fingerprint = loaded.fingerprint;
                self.put_in_force(loaded, None, &self.directory.display());
                Ok(fingerprint)
            }
            Err(error) if settings.start_without_rules => {
                tracing::error!("not ready, for want of valid rules:\n{error}");
                self.refuse(&error);
                Ok(error.fingerprint())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes what the watcher found in the directory and loaded in the background, on a thread that may wait.
    pub(super) fn take(&self, loaded: Result<Loaded, LoadError>) {
        metrics::config_load(loaded.is_ok());
        match loaded {
            Ok(loaded) => {
                let rules = self.put_in_force(loaded, None, &self.directory.display());
                tracing::info!(rules, "loaded the changed rules from {}", self.directory.display());
                self.drop_rules_before();
            }
            Err(error) => {
                tracing::error!("the changed rules are not used, {}:\n{error}", self.what_stays());
                self.refuse(&error);
            }
        }
    }

    /// Takes a version that became current in the store, on a thread that may wait. Who follows the store tells why a
    /// bad one is not in force.
    pub(super) fn take_version(&self, loaded: Result<Loaded, LoadError>, version: &Version) {
        metrics::config_load(loaded.is_ok());
        let Version { number, author, .. } = version;
        match loaded {
            Ok(loaded) => {
                let rules = self.put_in_force(loaded, Some(*number), &format_args!("version {number}"));
                tracing::info!(rules, %author, "version {number} of the rules is in force");
                self.drop_rules_before_later();
            }
            Err(error) => {
                let stays = self.what_stays();
                tracing::error!(%author, "version {number} of the rules is not used, {stays}:\n{error}");
            }
        }
    }

    /// Takes what the control plane sent, on a thread that may wait.
    pub(super) fn take_pushed(&self, pushed: Result<Loaded, Refused>) {
        metrics::config_load(pushed.is_ok());
        match pushed {
            Ok(loaded) => {
                let before = self.rules.load().map_or(0, |rules| rules.rule_count());
                match self.put_in_force(loaded, None, &"what the control plane sent") {
                    0 if before > 0 => {
                        tracing::warn!("the control plane sent no rules: the {before} before are gone");
                    }
                    rules => tracing::info!(rules, "the rules that the control plane sent are in force"),
                }
                self.drop_rules_before_later();
            }
            Err(error) => {
                tracing::error!("what the control plane sent is not used, {}:\n{error}", self.what_stays());
                self.refuse(&error);
            }
        }
    }

    /// Takes note that the control plane is there and sends nothing: unless they have to be waited for, there are no
    /// rules then.
    pub(super) fn take_silence(&self, waits: bool) {
        if self.rules.load().is_none() && self.readiness.phase() == Phase::Starting {
            tracing::warn!(
                "the control plane is there and sends nothing: it seems to have no rules for this node"
            );
            if !waits {
                self.readiness.rules_loaded();
            }
        }
    }

    fn what_stays(&self) -> &'static str {
        match self.rules.load() {
            Some(_) => "the old ones stay in force",
            None => "there are none yet",
        }
    }

    fn refuse(&self, error: &dyn Display) {
        let problem = shortened(error.to_string());
        self.status.update(|state| state.problem = Some(problem.clone()));
    }

    /// The same for what comes next not to wait for it.
    fn drop_rules_before_later(&self) {
        let reloader = self.clone();
        spawn_blocking(move || reloader.drop_rules_before());
    }

    /// Gives the memory of the rules before back, so that no two versions are held for long.
    fn drop_rules_before(&self) {
        for _ in 0..LOOKS {
            if self.rules.drop_unused() {
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Puts rules from `place` in force, and says how many there are now.
    fn put_in_force(&self, loaded: Loaded, version: Option<u64>, place: &dyn Display) -> usize {
        if !loaded.warnings.problems().is_empty() {
            tracing::warn!("the rules in {place} look odd:\n{}", loaded.warnings);
        }
        let rules = Arc::new(loaded.rules);
        let count = rules.rules().count();
        metrics::rules_in_force(rules.domains().count(), count);
        self.rules.replace(rules);
        let (fingerprint, since_ms) =
            (loaded.fingerprint.to_string(), Clock::System.now().as_micros() / 1_000);
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
    use super::*;
    use crate::control::RulesSource;

    #[test]
    fn a_bad_version_leaves_the_good_one_in_force() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules.yaml");
        let settings = RulesSettings {
            source: RulesSource::Directory,
            directory: directory.path().into(),
            file: None,
            xds: None,
            options: config::Options::default(),
            start_without_rules: false,
        };
        let reloader = Reloader::new(Readiness::new(), &settings);

        std::fs::write(&file, "domain: [").expect("written");
        assert!(reloader.load_first(&settings).is_err());
        assert_eq!(reloader.readiness.phase(), Phase::Starting);

        std::fs::write(&file, "domain: web\ndescriptors: []\n").expect("written");
        reloader.take(config::load(directory.path(), &settings.options));
        let good = reloader.rules.load().expect("in force");
        assert_eq!(reloader.readiness.phase(), Phase::Ready);

        std::fs::write(&file, "domain: [").expect("written");
        reloader.take(config::load(directory.path(), &settings.options));
        assert!(Arc::ptr_eq(&reloader.rules.load().expect("in force"), &good));
        assert_eq!(reloader.readiness.phase(), Phase::Ready);
    }
}
