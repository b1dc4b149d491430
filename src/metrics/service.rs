//! What envoyproxy/ratelimit counts of the whole service, read from what is counted here.

use super::{
    degraded,
    latency::{self, Times},
    loads, requests,
};

/// All of it so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// Requests that failed because the store did.
    pub(super) redis_errors: u64,
    /// Requests that failed for another reason.
    pub(super) service_errors: u64,
    /// Loads of the rules that succeeded, and that failed.
    pub(super) loads: [u64; 2],
    /// Requests that passed only because of the process's shadow mode.
    pub(super) shadowed: u64,
    /// How long calls took.
    pub(super) calls: Times,
}

/// What was counted so far, as of the last time that counts were published.
pub(super) fn so_far() -> Service {
    let answered = requests::so_far();
    Service {
        redis_errors: answered.store_errors,
        service_errors: answered.other_errors,
        loads: loads::so_far(),
        shadowed: degraded::shadowed_so_far(),
        calls: latency::of_calls(),
    }
}
