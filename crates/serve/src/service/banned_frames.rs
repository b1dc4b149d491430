//! Responses to banned clients, which repeat their requests: encoded once for each second.

use std::{fmt, hash::BuildHasher as _, sync::Arc};

use bytes::Bytes;
use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tollgate_core::{algorithm::Algorithm, ban::Ban, quota::Quota};
use tollgate_limiter::decision::{Code, Limited, Status};

use super::{Parts, headers::whole_seconds};

/// Number of retained responses of a worker.
const SLOTS: usize = 64;

/// Maximum length of a request whose response is retained, in bytes. With the response, a slot takes less than 2 KB.
const MAX_REQUEST_BYTES: usize = 512;

/// Encoded responses of one worker, by the bytes of their requests. Clones share them.
#[derive(Clone, Default)]
pub(super) struct BannedFrames(Arc<Responses>);

#[derive(Default)]
struct Responses {
    hasher: RandomState,
    /// Each request has one slot; the last response takes it.
    slots: Mutex<Vec<Option<Retained>>>,
}

struct Retained {
    request: Box<[u8]>,
    rule: Box<str>,
    name: Box<str>,
    state: State,
    frame: Bytes,
}

/// State that a response depends on, besides the request, the texts of the rule and the settings.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    ban: Ban,
    quota: Quota,
    algorithm: Algorithm,
    /// In seconds, as the response reports them.
    until_reset: u64,
    retry_after: Option<u64>,
}

impl fmt::Debug for BannedFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BannedFrames")
    }
}

impl BannedFrames {
    /// Returns the response to a banned client, encoded for an earlier request with these bytes or by `encode`.
    pub(super) fn get(
        &self,
        request: &[u8],
        parts: &Parts<'_, '_, '_>,
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let Some((limited, state)) = banned(parts).filter(|_| request.len() <= MAX_REQUEST_BYTES) else {
            return encode();
        };
        let Self(responses) = self;
        let slot = responses.hasher.hash_one(request) as usize % SLOTS;
        let mut slots = responses.slots.lock();
        if slots.is_empty() {
            slots.resize_with(SLOTS, || None);
        }
        let Some(slot) = slots.get_mut(slot) else { return encode() };
        let (rule, name) = (limited.label(), limited.name());
        if let Some(retained) = slot
            && (retained.state, &*retained.request) == (state, request)
            && (&*retained.rule, &*retained.name) == (rule, name)
        {
            return retained.frame.clone();
        }
        let frame = encode();
        *slot = Some(Retained {
            request: request.into(),
            rule: rule.into(),
            name: name.into(),
            state,
            frame: frame.clone(),
        });
        frame
    }
}

/// The limit of a request that is denied by its ban alone.
fn banned<'p>(parts: &'p Parts<'_, '_, '_>) -> Option<(&'p Limited<'p>, State)> {
    let decision = parts.decision;
    let [Status::Limited(limited)] = &*decision.statuses else { return None };
    let is_other = parts.permits.is_some()
        || decision.degraded.is_some()
        || decision.listed.is_some()
        || decision.shed.is_some()
        || limited.is_quota
        || !limited.several.is_empty();
    let ban = limited.enforced_ban().filter(|ban| !ban.is_new && !is_other)?;
    (decision.code == Code::OverLimit).then(|| {
        let until_reset = whole_seconds(limited.until_reset());
        let (quota, algorithm) = (limited.quota, limited.algorithm);
        (limited, State { ban, quota, algorithm, until_reset, retry_after: parts.retry_after })
    })
}
