//! Top talkers: the heaviest and the most denied keys of each domain over the last minute, from a bounded sketch.
//!
//! ```text
//! worker ──> ear (samples, weighted) ──> queue ──> collector ──> sketch of the domain ──> report
//! ```
//!
//! - Each thread hears every descriptor of a domain that has rules. It takes a sample of each hit as long as there
//!   are at most 5,000 in a second, and else of as many, by chance; of denied ones apart, so that few are not lost among
//!   many. What a sample weighs is how many hits it stands for.
//! - Samples wait in a queue of the thread, which the collector empties ten times a second. A full one drops what comes,
//!   and that is counted.
//! - A sketch is six windows of ten seconds; each has a space-saving summary of what was asked for, and one of what was
//!   denied. Together they tell of each key that has more than one in 672 of the domain's hits, and with what error.
//! - Memory: a summary has at most 896 keys of at most 256 bytes; there are at most 64 domains. All sketches take 20 MiB
//!   at the most, and then each summary makes do with fewer keys, 21 at least; which is 28 MiB together at the worst. A
//!   queue has 256 KiB at the most.

mod active;
mod collector;
mod sampler;
pub mod metrics;
mod window;
mod samples;
mod sketches;
mod sampling_rate;
mod summary;
#[cfg(test)]
mod tests;

use std::io;

use serde::Serialize;

use tollgate_core::descriptor::Entry;

/// Bytes of a key, or of a domain's name.
const LONGEST_TEXT: usize = 256;

/// A key that asks much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Talker {
    /// The descriptor's entries, `key=value`, joined by commas; cut at 256 bytes, and then it ends with `…`.
    pub key: String,
    /// Hits within the last minute, about: never too few but for what sampling missed.
    pub hits: u64,
    /// How many of these may not be its own.
    pub error: u64,
}

/// The keys of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DomainTop {
    /// The domain.
    pub domain: String,
    /// Those that asked for the most hits, heaviest first.
    pub heaviest: Vec<Talker>,
    /// Those that were denied the most hits, heaviest first.
    pub denied: Vec<Talker>,
}

/// Starts collecting, once in a process, on a thread of its own. Without sampling, [`report`] has nothing to tell.
///
/// # Errors
/// When the operating system refuses the thread.
pub fn start(is_sampling: bool) -> io::Result<()> {
    collector::start(is_sampling)
}

/// Notes what one descriptor of a domain that has rules asked for, in hits, and whether it was denied. For the hot path:
/// waits for nobody.
#[inline]
pub fn seen(domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
    collector::seen(domain, entries, hits, is_denied);
}

/// The heaviest keys of every domain, or of one, at most so many of each. Takes up to a millisecond for each domain.
pub fn report(domain: Option<&str>, most: usize) -> Vec<DomainTop> {
    collector::report(domain, most)
}

/// Domains with rules that were asked about within the last minute, also with a look; at most 100, the latest first, and
/// only those whose names have at most 256 bytes.
pub fn active_domains() -> Vec<String> {
    collector::active_domains()
}

/// Bytes that all sketches take, about.
pub fn bytes() -> usize {
    collector::bytes()
}
