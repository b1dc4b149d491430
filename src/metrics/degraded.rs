//! What is counted where the store does not decide, or nobody minds: at every request while that lasts.

use std::{
    array,
    sync::{Arc, LazyLock},
};

use metrics::counter;

use super::{readable::Readable, striped::Striped};
use crate::{rules::OnStoreError, store::StoreError};

const POLICIES: usize = OnStoreError::ALL.len();
const REASONS: usize = StoreError::LABELS.len();

/// One for each policy and reason, the reasons of a policy together.
static DEGRADED: LazyLock<Arc<Striped<{ POLICIES * REASONS }>>> = LazyLock::new(|| {
    let mut pairs =
        OnStoreError::ALL.iter().flat_map(|policy| StoreError::LABELS.map(|reason| (policy.name(), reason)));
    Striped::new(array::from_fn(|_| {
        let (policy, reason) = pairs.next().unwrap_or_default();
        counter!("tollgate_degraded_total", "policy" => policy, "reason" => reason)
    }))
});

static UNKNOWN_DOMAIN: LazyLock<Readable> =
    LazyLock::new(|| Readable::new("tollgate_unknown_domain_requests_total"));

static SHADOWED: LazyLock<Readable> = LazyLock::new(|| Readable::new("tollgate_shadow_mode_passes_total"));

/// Counts a descriptor that was decided without the store: how, and the label of the store's error.
pub fn degraded(policy: OnStoreError, reason: &'static str) {
    let policy = OnStoreError::ALL.iter().position(|known| *known == policy);
    let reason = StoreError::LABELS.iter().position(|known| *known == reason);
    debug_assert!(reason.is_some(), "a reason that is counted nowhere");
    if let Some((policy, reason)) = policy.zip(reason) {
        DEGRADED.increment(policy.saturating_mul(REASONS).saturating_add(reason));
    }
}

/// Has all of them begin at zero.
pub(super) fn in_use() {
    LazyLock::force(&DEGRADED);
}

/// Counts a request for a domain that no rules are loaded for. The name is the caller's, so it is no label.
pub fn unknown_domain() {
    UNKNOWN_DOMAIN.increment();
}

/// How many there were.
pub(super) fn unknown_domains_so_far() -> u64 {
    UNKNOWN_DOMAIN.so_far()
}

/// Counts a request that passed only because of the process's shadow mode.
pub fn shadowed() {
    SHADOWED.increment();
}

/// How many there were.
pub(super) fn shadowed_so_far() -> u64 {
    SHADOWED.so_far()
}

/// Counts spans of traces that found no room, before there were any.
pub fn trace_spans_dropped_at_once(count: u64) {
    static COUNTER: LazyLock<Arc<Striped<1>>> =
        LazyLock::new(|| Striped::new([counter!("tollgate_trace_spans_total", "result" => "dropped")]));
    COUNTER.add([count]);
}
