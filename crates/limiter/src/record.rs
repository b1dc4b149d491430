//! What is told of the descriptors of a request.

use super::metrics::RuleCounters;
use super::{Modes, Target};
use crate::{
    talkers as top,
    verdict::{Code, Status},
};
use tollgate_core::descriptor::Descriptor;
use tollgate_rules::Domain;

/// Counts what each descriptor came to: for the metrics of its limit, and for who asks the most.
pub(super) fn count(
    counters: &RuleCounters,
    domain: &Domain,
    descriptors: &[Descriptor<'_>],
    targets: &[Target<'_>],
    statuses: &[Status<'_>],
    modes: Modes,
) {
    for ((descriptor, target), status) in descriptors.iter().zip(targets).zip(statuses) {
        let is_denied = status.code() == Code::OverLimit;
        top::seen(&domain.name, &descriptor.entries, descriptor.hits.charged(), is_denied);
        if let (Status::Limited(limited), Some(hits)) = (status, target.hits()) {
            counters.hits(domain, &descriptor.entries, limited, hits, modes.near_limit_ratio);
        }
    }
}
