//! How versions of the configuration take effect.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use super::health::Readiness;
use crate::{
    config::{self, Fingerprint, LoadError, Loaded},
    metrics,
    rules::Snapshot,
    settings::RulesSettings,
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
    directory: PathBuf,
}

impl Reloader {
    pub(super) fn new(readiness: Readiness, settings: &RulesSettings) -> Self {
        Self { rules: Arc::default(), readiness, directory: settings.directory.clone() }
    }

    /// Loads the first version, and says which one that was. A bad one is an error unless the settings say
    /// otherwise.
    pub(super) fn load_first(&self, settings: &RulesSettings) -> Result<Fingerprint, LoadError> {
        let loaded = config::load(&self.directory, &settings.options);
        metrics::config_load(loaded.is_ok());
        match loaded {
            Ok(loaded) => {
                let fingerprint = loaded.fingerprint;
                self.put_in_force(loaded);
                Ok(fingerprint)
            }
            Err(error) if settings.start_without_rules => {
                tracing::error!("not ready, for want of valid rules:\n{error}");
                Ok(error.fingerprint())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a version that the watcher found and loaded in the background, on a thread that may wait.
    pub(super) fn take(&self, version: Result<Loaded, LoadError>) {
        metrics::config_load(version.is_ok());
        match version {
            Ok(loaded) => {
                self.put_in_force(loaded);
                let rules = self.rules.load().map_or(0, |rules| rules.rules().count());
                tracing::info!(rules, "loaded the changed rules from {}", self.directory.display());
                self.drop_rules_before();
            }
            Err(error) => {
                let in_force = match self.rules.load() {
                    Some(_) => "the old ones stay in force",
                    None => "there are none yet",
                };
                tracing::error!("the changed rules are not used, {in_force}:\n{error}");
            }
        }
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

    fn put_in_force(&self, loaded: Loaded) {
        if !loaded.warnings.problems().is_empty() {
            tracing::warn!("the rules in {} look odd:\n{}", self.directory.display(), loaded.warnings);
        }
        let rules = Arc::new(loaded.rules);
        metrics::rules_in_force(rules.domains().count(), rules.rules().count());
        self.rules.replace(rules);
        self.readiness.rules_loaded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Phase;

    #[test]
    fn a_bad_version_leaves_the_good_one_in_force() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules.yaml");
        let settings = RulesSettings {
            directory: directory.path().into(),
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
