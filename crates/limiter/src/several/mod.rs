//! Several limits of one descriptor.
//!
//! Each is a rule of its own, with a match, a check and a status of its own: those beside the first one stand behind those
//! of the descriptors, and are decided in one call with it. The descriptor's status is that of the strictest one.

use std::borrow::Cow;

use smallvec::SmallVec;
use tollgate_core::descriptor::Descriptor;

use crate::verdict::{Code, Limited, SeveralLimits, Status};

/// The descriptors of the limits beside the first ones, by their order behind those of the descriptors. Usually empty.
#[derive(Debug, Default)]
pub(super) struct Beside(Vec<usize>);

impl Beside {
    /// Adds a match behind the others, of the descriptor at `at`.
    pub(super) fn push(&mut self, at: usize) {
        self.0.push(at);
    }

    /// The descriptor of each match.
    pub(super) fn descriptors<'d, 'e>(&self, descriptors: &'d [Descriptor<'e>]) -> Cow<'d, [Descriptor<'e>]> {
        if self.0.is_empty() {
            return Cow::Borrowed(descriptors);
        }
        let beside = self.0.iter().filter_map(|at| descriptors.get(*at));
        Cow::Owned(descriptors.iter().chain(beside).cloned().collect())
    }

    /// Number of the descriptors, of this number of matches.
    pub(super) const fn descriptor_count(&self, matches: usize) -> usize {
        matches.saturating_sub(self.0.len())
    }

    /// The index of the descriptor whose match is at `at`, where there are this number of descriptors.
    pub(super) fn origin(&self, at: usize, descriptors: usize) -> usize {
        at.checked_sub(descriptors).and_then(|beside| self.0.get(beside)).copied().unwrap_or(at)
    }

    /// Whether a limit beside that of a descriptor denies.
    pub(super) fn is_denied(&self, at: usize, statuses: &[Status<'_>]) -> bool {
        let behind = statuses.iter().skip(self.descriptor_count(statuses.len()));
        self.0.iter().zip(behind).any(|(of, status)| *of == at && status.code() == Code::OverLimit)
    }

    /// Leaves the status of each descriptor: that of its strictest limit. Returns all limits of descriptors with several.
    pub(super) fn fold<'r>(&self, statuses: &mut SmallVec<[Status<'r>; 2]>) -> SeveralLimits<'r> {
        if self.0.is_empty() {
            return SeveralLimits::default();
        }
        let count = self.descriptor_count(statuses.len());
        let behind: Vec<Status<'r>> = statuses.drain(count..).collect();
        let mut several = Vec::new();
        for (at, status) in statuses.iter_mut().enumerate() {
            let beside = self.0.iter().zip(&behind).filter(|(of, _)| **of == at).map(|(_, status)| status);
            let mut beside = beside.peekable();
            if beside.peek().is_none() {
                continue;
            }
            let each = std::iter::once(status.clone()).chain(beside.cloned());
            let each: Vec<Status<'r>> = each.collect();
            several.extend(each.iter().filter_map(|status| Some((at, status.limited()?.clone()))));
            if let Some(strictest) = each.into_iter().reduce(stricter) {
                *status = strictest;
            }
        }
        SeveralLimits(several)
    }
}

/// The stricter of two statuses; the first one of equal ones.
fn stricter<'r>(one: Status<'r>, other: Status<'r>) -> Status<'r> {
    let is_other = match (one.limited(), other.limited()) {
        (Some(one), Some(other)) => is_stricter(other, one),
        (None, Some(_)) => one.code() == Code::Ok,
        (_, None) => false,
    };
    if is_other { other } else { one }
}

/// Whether a limit is stricter than another one: it denies, for longer, or has fewer hits left.
fn is_stricter(limit: &Limited<'_>, other: &Limited<'_>) -> bool {
    match (limit.code(), other.code()) {
        (Code::OverLimit, Code::OverLimit) => limit.until_reset() > other.until_reset(),
        (Code::OverLimit, Code::Ok) => true,
        (Code::Ok, Code::OverLimit) => false,
        (Code::Ok, Code::Ok) => limit.verdict.remaining < other.verdict.remaining,
    }
}

#[cfg(test)]
mod tests;
