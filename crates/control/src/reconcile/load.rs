//! Loading versions, putting them back, and making the first one.

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};

use super::rules::Rules;
use crate::{
    Action, AuditEntry, Control, ControlError, Draft, Files, metrics,
    stored::{Current, Kept, OURSELVES, PutBack, Reach},
};
use tollgate_rules::config;

/// Bytes of a version from which on instances do not fetch it all at once, and how long they may wait.
const LARGE: u64 = 256 << 10;
const SPREAD_MS: u64 = 500;
/// Versions before the current one that may be enforced in its place where nothing else is.
const MOST_EARLIER: u64 = 10;
/// Attempts to fetch a version that is lost before an earlier one is enforced: somebody may put it back.
const PATIENCE: u32 = 2;

/// A version that is to be in force.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) current: Current,
    /// Bytes of its files, if that is known.
    pub(super) size: u64,
    /// Attempts that failed.
    pub(super) failed: u32,
    /// What is in force.
    pub(super) enforced: Option<Current>,
}

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    InForce(Arc<Kept>),
    /// Nothing was in force, and this version of before is now, for want of the current one.
    Earlier(Arc<Kept>, Trouble),
    /// What was in force still is.
    Trouble(Trouble),
    /// Nothing, for this reason.
    Failed(String),
    /// The store has other versions now.
    Changed,
    /// The store has gone on from this version, so it is to be in force.
    Stands(Option<Current>),
    /// There is nothing to begin with.
    Nothing,
}

/// Why a version is not in force.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is bad, for this reason.
    Refused(Current, String),
    /// It could not be had, for this reason.
    Missing(Current, String),
}

/// Fetches and loads a version, and has it put in force; an earlier one if it is bad or lost and nothing is in force.
pub(super) async fn load(control: &Control, rules: Rules, wanted: Wanted) -> Outcome {
    let Wanted { current, size, failed, enforced } = wanted;
    if size > LARGE && enforced.is_some() {
        sleep(Duration::from_millis(fastrand::u64(..SPREAD_MS))).await;
    }
    let number = current.number;
    let (trouble, is_given_up) = match control.store().version(number).await {
        Ok(Some(kept)) if kept.token == current.token => match take(kept, rules.clone()).await {
            Ok(Ok(kept)) => return Outcome::InForce(kept),
            Ok(Err(reason)) => (Trouble::Refused(current, reason), true),
            Err(reason) => (Trouble::Missing(current, reason), false),
        },
        Ok(Some(_)) => (Trouble::Missing(current, format!("version {number} was replaced")), false),
        Ok(None) => {
            let reason = format!("the store has lost version {number}");
            (Trouble::Missing(current, reason), failed >= PATIENCE)
        }
        Err(error) => (Trouble::Missing(current, error.to_string()), false),
    };
    if enforced.is_none() && is_given_up {
        return earlier(control, rules, number, trouble).await;
    }
    Outcome::Trouble(trouble)
}

/// Puts the latest good version before this one in force, if there is one.
async fn earlier(control: &Control, rules: Rules, number: u64, trouble: Trouble) -> Outcome {
    let first = number.saturating_sub(MOST_EARLIER).max(1);
    for before in (first..number).rev() {
        let Ok(Some(kept)) = control.store().version(before).await else { continue };
        if let Ok(Ok(kept)) = take(kept, rules.clone()).await {
            tracing::error!("version {before} of the rules is in force in place of version {number}");
            return Outcome::Earlier(kept, trouble);
        }
    }
    Outcome::Trouble(trouble)
}

/// Has a version put in force if it is good; else says why it is not, or why that is not known.
async fn take(kept: Arc<Kept>, rules: Rules) -> Result<Result<Arc<Kept>, String>, String> {
    let taken = spawn_blocking(move || {
        let number = kept.version.number;
        let files = kept.files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
        let loaded = config::load_files(files, rules.options);
        let refused = loaded.as_ref().err().map(|error| format!("version {number} is not valid: {error}"));
        (rules.take)(loaded, &kept.version);
        refused.map_or(Ok(kept), Err)
    });
    taken.await.map_err(|error| error.to_string())
}

/// Puts a version back that the store has lost, in which another one is `current`.
pub(super) async fn put_back(
    control: &Control,
    enforced: &Kept,
    current: Option<Current>,
    reach: Reach,
) -> Outcome {
    let number = enforced.version.number;
    let audit = AuditEntry::put_back(Action::Apply, format!("version {number}"));
    match control.store().put_back(enforced, audit, reach).await {
        Ok(PutBack::Made) => {
            metrics::store_error("lost");
            tracing::error!("the store had lost version {number} of the rules: it was put back");
            Outcome::Changed
        }
        // Somebody else did.
        Ok(PutBack::Kept) => Outcome::Changed,
        Ok(PutBack::Other) => {
            metrics::store_error("lost");
            tracing::error!("the store has gone on without version {number} of the rules: it is given up");
            Outcome::Stands(current)
        }
        Err(error) => Outcome::Failed(format!("the store has lost version {number}: {error}")),
    }
}

/// Makes a first version of the directory's files, if it has any.
pub(super) async fn import(control: &Control, rules: Rules) -> Outcome {
    let directory = rules.directory.clone();
    let read = spawn_blocking(move || config::read_valid(&rules.directory, rules.options)).await;
    let files: Files = match read {
        Ok(Ok(Some(files))) => files,
        Ok(Ok(None)) => return Outcome::Nothing,
        Ok(Err(error)) => return Outcome::Failed(format!("there is no version yet, and {error}")),
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let comment = format!("imported from {}", directory.display());
    let author = OURSELVES.to_owned();
    let draft = Draft { files, based_on: None, rollback_to: None, author, comment };
    match control.apply(draft).await {
        Ok(_) | Err(ControlError::Stale { .. }) => Outcome::Changed,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
