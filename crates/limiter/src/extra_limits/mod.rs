//! Several limits of one descriptor.
//!
//! Each is a rule of its own, with a match, a check and a status of its own: extra limits, which are all but the first one,
//! stand behind the descriptors, and are decided in one call with the first one. The descriptor's status is that of the
//! strictest one.

use std::{borrow::Cow, iter::once};

use smallvec::SmallVec;
use tollgate_core::descriptor::Descriptor;

use crate::decision::{Code, Limited, SeveralLimits, Status};

/// Descriptors of a request, and those of its extra limits behind them. Usually there are no extra ones.
#[derive(Debug)]
pub(super) struct ExtraLimits<'d, 'e> {
    each: Cow<'d, [Descriptor<'e>]>,
    /// The position of the descriptor of each extra limit.
    origins: Vec<usize>,
}

impl<'d, 'e> ExtraLimits<'d, 'e> {
    /// Begins with no extra limits of the descriptors.
    pub(super) const fn new(descriptors: &'d [Descriptor<'e>]) -> Self {
        Self { each: Cow::Borrowed(descriptors), origins: Vec::new() }
    }

    /// Adds an extra limit of the descriptor at `at`.
    pub(super) fn push(&mut self, at: usize, descriptor: &Descriptor<'e>) {
        self.each.to_mut().push(descriptor.clone());
        self.origins.push(at);
    }

    /// The descriptor of each match.
    pub(super) fn descriptors(&self) -> &[Descriptor<'e>] {
        &self.each
    }

    /// Number of descriptors of the request.
    pub(super) fn count(&self) -> usize {
        self.each.len().saturating_sub(self.origins.len())
    }

    /// The position of the descriptor whose match is at `at`.
    pub(super) fn origin(&self, at: usize) -> usize {
        at.checked_sub(self.count()).and_then(|extra| self.origins.get(extra)).copied().unwrap_or(at)
    }

    /// Whether an extra limit of a descriptor denies.
    pub(super) fn is_denied(&self, at: usize, statuses: &[Status<'_>]) -> bool {
        let extra = statuses.iter().skip(self.count());
        self.origins.iter().zip(extra).any(|(of, status)| *of == at && status.code() == Code::OverLimit)
    }

    /// Leaves the status of each descriptor: that of its strictest limit. Returns all limits of descriptors with several.
    pub(super) fn fold<'r>(&self, statuses: &mut SmallVec<[Status<'r>; 2]>) -> SeveralLimits<'r> {
        if self.origins.is_empty() {
            return SeveralLimits::default();
        }
        let extra: Vec<Status<'r>> = statuses.drain(self.count()..).collect();
        let mut several = Vec::new();
        for (at, status) in statuses.iter_mut().enumerate() {
            let of_descriptor = self.origins.iter().zip(&extra).filter(|(of, _)| **of == at);
            let mut of_descriptor = of_descriptor.map(|(_, status)| status).peekable();
            if of_descriptor.peek().is_none() {
                continue;
            }
            let each: Vec<Status<'r>> = once(&*status).chain(of_descriptor).cloned().collect();
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
