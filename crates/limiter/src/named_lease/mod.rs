//! Leases that callers name, to repeat a request without reserving again.
//!
//! A budget reserves once under a lease. Other limits would be charged by each attempt, so that a request under a named lease
//! has none. Its limits are of one hash tag, so that one atomic call reserves of all or of none: what a denied attempt had
//! reserved in another tag could not be released safely, since the next attempt may have reserved it meanwhile. Limits that
//! it only reads are no exception, as their `on_store_error` may deny it.

use std::{error::Error, fmt};

use tollgate_core::descriptor::Hits;
use tollgate_store::request::{Check, Requests, TagRequest};

use crate::{Match, Matches};

/// Reason why a request cannot have a lease that its caller names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRepeatable {
    /// A limit that each attempt would charge.
    OtherLimit(Box<str>),
    /// Several descriptors of one budget, the sum of which is reserved.
    SharedCounter,
    /// Limits that are decided in several calls, of which one reserves.
    SeveralTags,
}

impl fmt::Display for NotRepeatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherLimit(label) => write!(
                f,
                "the limit `{label}` has no `reserve`, so that a repetition is charged again; expected limits with \
                 `reserve`, or no id"
            ),
            Self::SharedCounter => f.write_str(
                "several descriptors have the same counter; expected one descriptor for each, or no id",
            ),
            Self::SeveralTags => f.write_str(
                "the limits have several hash tags, so that they are not decided at once; expected a common \
                 `hash_tag`, or no id",
            ),
        }
    }
}

impl Error for NotRepeatable {}

/// Whether a repetition of `calls`, which reserve under a named lease, changes nothing.
pub(super) fn check(calls: &Requests, matches: &Matches<'_>) -> Result<(), NotRepeatable> {
    let charges = |check: &&Check| check.hits.charged() > 0;
    let is_reservation =
        |check: &Check| check.policy.is_budget() && matches!(check.hits, Hits::Acquire { .. });
    let mut charged = calls.iter().flat_map(TagRequest::checks).filter(charges);
    if let Some(other) = charged.find(|check| !is_reservation(check)) {
        let rule = matches.get(other.descriptor).and_then(Match::rule);
        return Err(NotRepeatable::OtherLimit(rule.map_or("request", |rule| rule.label()).into()));
    }
    let mut cells = calls.iter().flat_map(|call| &call.cells);
    if cells.any(|cell| cell.checks.iter().any(|check| charges(&check) && !cell.checks_once(check.record))) {
        return Err(NotRepeatable::SharedCounter);
    }
    match calls.len() > 1 && calls.iter().flat_map(TagRequest::checks).any(|check| charges(&check)) {
        true => Err(NotRepeatable::SeveralTags),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
