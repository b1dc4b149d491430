//! Lists and switches that the user of the Redis may not have, where rules come from a directory.

use std::time::Duration;

use tokio::time::Instant;

use crate::{ControlError, RulesSource};

/// Between two looks whether they may be had by now.
const REST: Duration = Duration::from_secs(30);

/// What servers say to a user who may not do something: by himself, or by a script, in Redis 7 and before.
const REFUSALS: [&str; 3] = ["NOPERM", "ACL failure in script", "can't run this command or subcommand"];

/// Whether they may not be had. Then there are none, which is told once: limits do not need them, and a user that was
/// made for limits alone is no failure.
#[derive(Debug, Default)]
pub(super) struct Forbidden(Option<Instant>);

impl Forbidden {
    /// Takes note of an error, and says whether it is that.
    pub(super) fn note(&mut self, source: RulesSource, error: &ControlError) -> bool {
        let ControlError::Unavailable(reason) = error else { return false };
        let is_forbidden = REFUSALS.iter().any(|refusal| reason.contains(refusal));
        if source.has_versions() || !is_forbidden {
            return false;
        }
        if self.0.is_none() {
            tracing::warn!(
                "lists and switches are not available: the user of the Redis lacks rights that docs/guides/redis.md lists: {reason}"
            );
        }
        self.0 = Some(Instant::now());
        true
    }

    /// Takes note that they may be had.
    pub(super) fn end(&mut self) {
        if self.0.take().is_some() {
            tracing::info!("lists and switches are available");
        }
    }

    /// Whether it is too early to look again.
    pub(super) fn rests(&self) -> bool {
        self.0.is_some_and(|at| at.elapsed() < REST)
    }
}
