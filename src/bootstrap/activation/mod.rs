//! Activation of rules: one swap for every valid version, whatever its source.

#[cfg(test)]
mod tests;

use std::{fmt::Display, path::PathBuf, sync::Arc, thread, time::Duration};

use tokio::task::spawn_blocking;
use tollgate_control::metrics::{self, ConfigLoad};
use tollgate_control::{RulesStatus, Version, VersionOrigin, bounds::truncated};
use tollgate_core::clock::{Clock, now_ms};
use tollgate_directory::{DirectoryError, Fingerprint, Reply, SourceFiles};
use tollgate_limiter::ActiveRules;
use tollgate_rules::Rules;
use tollgate_rules::config::{self, LoadError, Loaded, Options, OverlaySlot};
use tollgate_runtime::log_budget::LogBudget;
use tollgate_serve::readiness::{Phase, Readiness};
use tollgate_store::local::recheck_bans;
use tollgate_xds::Rejected;

use crate::settings::RulesSettings;

/// Interval of the polls for requests that still use the previous rules.
const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of those polls. Rules in use for longer are kept until the next version is activated.
const RELEASE_POLLS: usize = 50;

/// Log lines on rules that a control plane pushed: one that pushes without end would fill the log.
static PUSH_LINES: LogBudget = LogBudget::new(32, Duration::from_secs(5));

/// Reads the overlay of the rules, if there is one, for all later compilations.
pub(super) fn load_overlay(options: &Options) -> Result<(), LoadError> {
    match options.overlay {
        Some(slot) => slot.load(tollgate_directory::read_finished(slot.directory())?),
        None => Ok(()),
    }
}

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
        load_overlay(&settings.options)?;
        let read = tollgate_directory::read_finished(&self.directory).map_err(LoadError::from);
        let loaded = read.and_then(|files| config::compile_files(files, settings.options));
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

    /// Compiles and activates the files of a changed directory. Rules that lack active ones wait until it `is_quiet`. Blocks;
    /// not for async threads.
    pub(super) fn take_files(
        &self,
        files: Result<SourceFiles, DirectoryError>,
        is_quiet: bool,
        options: Options,
    ) -> Reply {
        let loaded = files.map_err(LoadError::from).and_then(|files| config::compile_files(files, options));
        if !is_quiet
            && let (Ok(loaded), Some(active)) = (&loaded, self.rules.load())
            && active.missing_in(&loaded.rules) > 0
        {
            return Reply::Early { awaiting: "files that remove rules" };
        }
        self.activate_changed(loaded);
        Reply::Taken
    }

    /// Activates rules of the directory, if they are valid and most of the active rules are among them.
    fn activate_changed(&self, loaded: Result<Loaded, LoadError>) {
        let removal = loaded.as_ref().ok().and_then(|loaded| Removal::by(loaded, &*self.rules.load()?));
        metrics::count_load(match (&loaded, &removal) {
            (Ok(_), None) => ConfigLoad::Success,
            (Ok(_), Some(_)) => ConfigLoad::Refused,
            (Err(LoadError::Directory(DirectoryError::Unfinished { .. })), _) => ConfigLoad::Unfinished,
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
            (Err(error @ LoadError::Directory(DirectoryError::Unfinished { .. })), _) => {
                tracing::warn!(%error, keeping = self.active_rules(), "rule files still open for writing");
                self.record_problem(&error);
            }
            (Err(error), _) => {
                tracing::error!(%error, keeping = self.active_rules(), "changed rules are invalid");
                self.record_problem(&error);
            }
        }
    }

    /// Activates a version that became current in the control store, or the last one from the disk. Blocks; not for async
    /// threads. The caller records the problem of an invalid version in the status.
    pub(super) fn activate_version(
        &self,
        loaded: Result<Loaded, LoadError>,
        version: &Version,
        origin: VersionOrigin,
    ) {
        metrics::config_load(loaded.is_ok());
        let Version { number, author, .. } = version;
        match loaded {
            Ok(loaded) => {
                let rules = self.activate(loaded, Some(*number), &format_args!("version {number}"));
                match origin {
                    VersionOrigin::Store => {
                        tracing::info!(rules, version = number, %author, "rules version active");
                    }
                    VersionOrigin::Disk => {
                        self.readiness.tolerate_outage();
                        tracing::warn!(
                            rules,
                            version = number,
                            %author,
                            "started from the last version on disk"
                        );
                    }
                }
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
                    rules if rules * 2 < before => {
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

    /// Takes over the files of a changed overlay. Returns whether the rules are to be compiled again.
    pub(super) fn take_overlay(
        &self,
        slot: &OverlaySlot,
        files: Result<SourceFiles, DirectoryError>,
    ) -> bool {
        match files.map_err(LoadError::from).and_then(|files| slot.check(files)) {
            Ok(overlay) if !self.allow_empty && slot.get().is_some_and(|active| overlay.empties(&active)) => {
                metrics::count_load(ConfigLoad::Refused);
                tracing::warn!(
                    error = %EMPTIED_OVERLAY,
                    "refused an emptied overlay; keeping the previous one"
                );
                self.record_problem(&EMPTIED_OVERLAY);
                false
            }
            Ok(overlay) => {
                tracing::info!(fingerprint = %overlay.fingerprint, "changed overlay read");
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
        if !loaded.warnings.is_empty() {
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
        let (fingerprint, since_ms) = (fingerprint.to_string(), now_ms());
        metrics::rules_version(version, since_ms);
        self.status.update(|state| {
            state.fingerprint.clone_from(&fingerprint);
            (state.version, state.since_ms, state.problem) = (version, since_ms, None);
        });
        self.readiness.rules_loaded();
        count
    }
}

/// Number of active rules below which other rules may replace them all: to rename a few is a usual change.
const FEW_RULES: usize = 10;

/// A change that would leave fewer than half of the active rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{missing} of {active} active rules are missing in the changed files; expected at most half of them, \
     --allow-empty or a file .allow-empty in the directory"
)]
pub(super) struct Removal {
    missing: usize,
    active: usize,
}

/// Problem of an overlay that would leave nothing of the active one.
const EMPTIED_OVERLAY: &str = "the changed overlay states nothing; expected files with descriptors, --allow-empty or a file \
     .allow-empty in its directory";

impl Removal {
    /// The removal that replacing `active` by `loaded` would be, unless it is permitted.
    pub(super) fn by(loaded: &Loaded, active: &Rules) -> Option<Self> {
        if loaded.allow_empty {
            return None;
        }
        let (missing, active) = (active.missing_in(&loaded.rules), active.rule_count());
        let lacks_most = |missing: usize| missing * 2 > active;
        let are_replaced =
            active < FEW_RULES && !lacks_most(active.saturating_sub(loaded.rules.rule_count()));
        (lacks_most(missing) && !are_replaced).then_some(Self { missing, active })
    }
}
