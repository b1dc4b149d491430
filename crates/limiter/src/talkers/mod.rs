//! Top talkers: the heaviest and the most denied keys of each domain over the last minute, from a bounded sketch.
//!
//! ```text
//! worker ──> sampler (weighted samples) ──> queue ──> collector ──> sketch of the domain ──> report
//! ```
//!
//! - Each thread records every descriptor of a domain that has rules, and of the few known ones without. It samples every hit up to 5,000 in a second, and
//!   above that about as many at random. Denied hits are sampled separately, so that rare denials are not lost among
//!   many hits. The weight of a sample is the number of hits that it represents.
//! - Samples wait in a queue of the thread, which the collector empties ten times a second. A full queue drops samples
//!   and counts them.
//! - A sketch is six windows of ten seconds; each has a space-saving summary of requested hits, and one of denied hits.
//!   Together they report each key that has more than 1/672 of the domain's hits, with an error bound.
//! - Memory: a summary has at most 896 keys of at most 256 bytes, and there are at most 64 domains. Above 20 MiB for
//!   all sketches, each summary is reduced to as few as 21 keys, which bounds them to 28 MiB. A queue has at most 256
//!   KiB.

mod active;
mod collector;
mod counts;
mod demand;
pub(crate) mod key;
mod merge;
pub mod metrics;
mod sampler;
mod samples;
mod sampling_rate;
mod share;
mod sketches;
pub(crate) mod summary;
#[cfg(test)]
mod tests;
mod window;

use std::io;

use serde::{Deserialize, Serialize};
use tollgate_core::descriptor::Entry;
use tollgate_rules::Listing;

pub use self::{
    counts::{DomainCounts, KeyCounts, Span, SpanCounts, merge},
    demand::{KeyDemand, TakenDemand},
    key::OwnedEntry,
    share::TrafficShare,
};

/// Maximum length of a key or of a domain's name.
const MAX_TEXT_BYTES: usize = 256;

/// Length of the window that [`Span::Recent`] covers, in seconds.
pub const RECENT_SECONDS: u64 = window::WINDOW_SECONDS;

/// A key with many hits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// The descriptor's entries for people: `key=value`, joined by commas, with `…` at the end if they are truncated to 256
    /// bytes.
    pub key: String,
    /// The descriptor's entries; `None` if they are truncated.
    pub descriptor: Option<Vec<OwnedEntry>>,
    /// Estimated hits within the last minute: never too few, apart from sampling.
    pub hits: u64,
    /// Hits that may belong to other keys.
    pub error: u64,
}

/// Top keys of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainTop {
    /// The domain.
    pub domain: String,
    /// Keys with the most requested hits, heaviest first.
    pub heaviest: Vec<Talker>,
    /// Keys with the most denied hits, heaviest first.
    pub denied: Vec<Talker>,
}

/// Starts collecting, once in a process, on a separate thread. Without sampling, [`report`] returns nothing.
///
/// # Errors
/// When the operating system refuses the thread.
pub fn start(is_sampling: bool) -> io::Result<()> {
    collector::start(is_sampling)
}

/// Records the requested hits of one descriptor, and whether it was denied. For the hot path: never waits. Domains without
/// rules are those of a bounded number of names.
#[inline]
pub fn record(domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
    collector::record(domain, entries, hits, is_denied);
}

/// Returns the heaviest keys of every domain, or of one, at most `limit` of each. Takes up to a millisecond for each
/// domain.
pub fn report(domain: Option<&str>, limit: usize) -> Vec<DomainTop> {
    collector::report(domain, limit)
}

/// Returns counts of the heaviest keys of every domain, of about `max_bytes` in JSON at most; for [`merge()`]. Takes up to a
/// millisecond for each domain.
pub fn counts(max_bytes: usize) -> Vec<DomainCounts> {
    collector::counts_within(max_bytes)
}

/// Returns the share of the last minute's requests that an entry of a list matches, for each of its domains that has any,
/// most first. Takes some milliseconds for each domain.
pub fn shares_of(listing: &Listing) -> Vec<TrafficShare> {
    collector::shares_of(listing)
}

/// Returns the domains that had requests within the last minute, reads included; at most 100, the latest
/// first, and only those whose names have at most 256 bytes.
pub fn active_domains() -> Vec<String> {
    collector::active_domains()
}

/// Takes the requested hits of each key since the last call, and counts them from the first call on.
pub fn take_demand() -> TakenDemand {
    collector::take_demand()
}

/// Approximate memory of all sketches, in bytes.
pub fn bytes() -> usize {
    collector::bytes()
}
