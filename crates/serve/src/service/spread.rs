//! Spread of the times at which denied clients return.
//!
//! All clients of a fixed window may be admitted in the same second. A delay that depends on the counter's key alone makes
//! them return one after another, and is the same on every instance and for every denial of the key.

use std::time::Duration;

use tollgate_core::descriptor::{Descriptor, Entry};
use tollgate_core::{Fnv, RecordId};
use tollgate_limiter::decision::{Decision, Limited};
use tollgate_rules::Rule;

/// Time until a denied request with these descriptors may be retried, with each limit's delay, which is at most its spread.
/// The end of a list entry has none.
pub(super) fn retry_after(
    decision: &Decision<'_>,
    domain: &str,
    descriptors: &[Descriptor<'_>],
) -> Option<Duration> {
    decision.retry_after_by(|at, limited| {
        limited.until_reset().saturating_add(delay(domain, descriptors, at, limited))
    })
}

/// Delay of the clients that the limit of the descriptor at `at` denies: whole seconds from zero to the maximum.
///
/// A concurrency limit has none: its permits are released at any moment, so its clients do not wait for the same one.
/// Neither has a ban, whose end is that of one client, nor a limit override, for which no rule states one.
pub(super) fn delay(
    domain: &str,
    descriptors: &[Descriptor<'_>],
    at: usize,
    limited: &Limited<'_>,
) -> Duration {
    let Some(rule) = limited.rule else { return Duration::ZERO };
    let max = rule.retry_after_spread.unwrap_or_default();
    if max.as_secs() == 0 || limited.algorithm.holds_permits() || limited.enforced_ban().is_some() {
        return Duration::ZERO;
    }
    let choices = max.as_secs().saturating_add(1);
    Duration::from_secs(key_hash(domain, descriptors, at, rule).checked_rem(choices).unwrap_or_default())
}

/// Hash of the counter's key, on which instances of two versions must agree. All values of the request stand for a
/// counter that its clients share, because their delays would be equal otherwise.
fn key_hash(domain: &str, descriptors: &[Descriptor<'_>], at: usize, rule: &Rule) -> u64 {
    let mut hash = Fnv::default();
    hash.text(domain);
    let entries = descriptors.get(at).map_or(&[][..], |descriptor| &descriptor.entries);
    hash.bytes(&(RecordId::LENGTH as u64).to_le_bytes());
    hash.bytes(&rule.record_id().path());
    let mut open = rule.open(entries).map(|(_, entry)| entry).peekable();
    match open.peek() {
        Some(_) => write_entries(&mut hash, open),
        None => write_entries(&mut hash, descriptors.iter().flat_map(|each| each.entries.iter().copied())),
    }
    hash.finish()
}

fn write_entries<'a>(hash: &mut Fnv, entries: impl Iterator<Item = Entry<'a>>) {
    for entry in entries {
        hash.text(entry.key);
        hash.text(entry.value);
    }
}
