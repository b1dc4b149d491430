//! Gradual changes of a limit: the share of its keys for which it denies, and a candidate beside it.

use tollgate_core::{EnforcedShare, RecordId, algorithm::Policy, quota::Quota};

/// Gradual change of a rule's limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// The keys for which the limit denies; for the others it is in shadow mode. `None` for all keys.
    pub enforced: Option<EnforcedShare>,
    /// The limit that is compared with the rule's.
    pub candidate: Option<Box<Candidate>>,
}

/// A limit beside that of a rule: charged by the same requests, in counters of its own, without effect on the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Hits and window.
    pub quota: Quota,
    /// The policy that decides.
    pub policy: Policy,
    /// Whether each charge counts in full, beyond the limit too.
    pub overdraft: bool,
    /// Identifier of its counters, beside those of the rule.
    pub record: RecordId,
}
