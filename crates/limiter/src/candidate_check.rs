//! Checks of candidates among those of a request, and the outcome of a comparison.

use tollgate_store::request::Check;

/// Bit of a check's descriptor that marks the check of a candidate: no request has this number of descriptors.
const MARK: usize = 1 << (usize::BITS - 1);

/// The mark of the candidate's check for the descriptor at `at`.
pub(super) const fn marked(at: usize) -> usize {
    at | MARK
}

/// The descriptor whose rule is compared, if the check's descriptor is marked.
pub(super) const fn compared(descriptor: usize) -> Option<usize> {
    match descriptor & MARK {
        0 => None,
        _ => Some(descriptor & !MARK),
    }
}

/// Whether a check is of a candidate, and so of no descriptor's own counter.
pub(super) const fn is_candidate(check: &Check) -> bool {
    compared(check.descriptor).is_some()
}

/// Decision of a rule and its candidate on the same hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both admit.
    Admitted,
    /// Only the rule denies.
    RuleOnly,
    /// Only the candidate denies.
    CandidateOnly,
    /// Both deny.
    Denied,
}

impl Outcome {
    /// Every outcome, in the order of counts.
    pub const ALL: [Self; 4] = [Self::Admitted, Self::RuleOnly, Self::CandidateOnly, Self::Denied];

    /// Name in the API and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::RuleOnly => "rule_only",
            Self::CandidateOnly => "candidate_only",
            Self::Denied => "denied",
        }
    }

    pub(super) const fn of(rule_admits: bool, candidate_admits: bool) -> Self {
        match (rule_admits, candidate_admits) {
            (true, true) => Self::Admitted,
            (false, true) => Self::RuleOnly,
            (true, false) => Self::CandidateOnly,
            (false, false) => Self::Denied,
        }
    }
}
