//! A denial that still stands.

use std::time::Duration;

use tokio::time::Instant;

use crate::request::Check;
use tollgate_core::{SyncMode, algorithm::Verdict, descriptor::Hits};

/// How long a denial is believed at the most: how late it may be noticed that hits were given back.
const MAX_DENIAL_AGE: Duration = Duration::from_millis(500);

/// The same where other workers hold tokens, which they give back when they don't need them.
const MAX_LEASED_DENIAL_AGE: Duration = Duration::from_millis(20);

/// What was said of a counter when hits were denied: those asked of it, or those asked of another one that is charged
/// with it or not at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    hits: u64,
    verdict: Verdict,
    /// Not later than it was decided.
    noted_at: Instant,
    until: Instant,
}

impl Denial {
    /// What stands after that verdict on a charge that was sent at `sent_at`, at the latest; nothing of places that are
    /// held, which may be given up at any time.
    pub(super) fn new(check: &Check, verdict: &Verdict, sent_at: Instant) -> Option<Self> {
        let Hits::Charge(hits) = check.hits else { return None };
        let max_age = match check.sync {
            SyncMode::Strict => MAX_DENIAL_AGE,
            SyncMode::Leased => MAX_LEASED_DENIAL_AGE,
        };
        let age = if verdict.admitted { max_age } else { max_age.min(verdict.retry_after) };
        let until = sent_at.checked_add(age)?;
        let is_lasting = !check.policy.algorithm().holds_permits();
        is_lasting.then_some(Self { hits: hits.get(), verdict: *verdict, noted_at: sent_at, until })
    }

    /// The denial of a charge, if it is one: of as many hits, or more.
    pub(super) fn covers(&self, hits: Hits, now: Instant) -> Option<Verdict> {
        let Hits::Charge(hits) = hits else { return None };
        let more = hits.get().checked_sub(self.hits)?;
        let verdict = self.at(now).filter(|verdict| !verdict.admitted)?;
        // When more than was denied will pass is not known.
        let retry_after = match more {
            0 => verdict.retry_after,
            _ => verdict.retry_after.max(verdict.reset_after),
        };
        Some(Verdict { over: verdict.over.saturating_add(more), retry_after, ..verdict })
    }

    /// What was said of just such a charge, whether or not it would have passed.
    pub(super) fn exact(&self, hits: Hits, now: Instant) -> Option<Verdict> {
        let Hits::Charge(hits) = hits else { return None };
        self.at(now).filter(|_| hits.get() == self.hits)
    }

    /// The verdict as of now, while it stands.
    fn at(&self, now: Instant) -> Option<Verdict> {
        let Self { verdict, noted_at, until, .. } = self;
        (now < *until).then(|| verdict.later(now.saturating_duration_since(*noted_at)))
    }
}
