//! Every store, under a time that the test sets.

use std::fmt;

use tollgate::SyncMode;
use tollgate::clock::{Clock, Timestamp};
use tollgate::store::request::{Check, Requests, push_check};
use tollgate::store::{MemoryStore, Store, key::CellKey};

use super::prelude::*;

/// A store under test: a handle on it for each time.
pub(crate) struct Subject(Box<dyn Fn(Timestamp) -> Store + Send + Sync>);

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store(at(0)).fmt(f)
    }
}

impl Subject {
    pub(crate) fn memory() -> Self {
        let clock = Clock::manual(at(0));
        let store = Store::new(MemoryStore::new(1 << 20, clock.clone()));
        Self(Box::new(move |now| {
            clock.set(now);
            store.clone()
        }))
    }

    pub(crate) fn redis(store: RedisStore) -> Self {
        Self(Box::new(move |now| Store::new(store.clone().at_time(now))))
    }

    /// The store at `now`.
    pub(crate) fn store(&self, now: Timestamp) -> Store {
        (self.0)(now)
    }

    /// Decides a call at `now`.
    pub(crate) async fn decide(&self, now: Timestamp, call: &TagRequest) -> Vec<Verdict> {
        let store = self.store(now);
        let mut decisions = store.decide(std::slice::from_ref(call), None).await;
        let mut verdicts = decisions.remove(0).expect("the store decides");
        verdicts.sort_by_key(|(descriptor, _)| *descriptor);
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    /// Decides one check alone.
    pub(crate) async fn decide_one(&self, now: Timestamp, name: &str, policy: Policy, hits: Hits) -> Verdict {
        self.decide(now, &call(name, &[(0, policy, hits)])).await[0]
    }
}

/// A point in time, in microseconds after the start of an hour.
pub(crate) fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_400_000_000 / 3_600_000_000 * 3_600_000_000 + micros)
}

/// `limit` per `seconds`; a bucket holds as much as its limit.
pub(crate) fn policy(algorithm: Algorithm, limit: u32, seconds: u32) -> Policy {
    let window = Window::from_seconds(seconds).expect("in range");
    Policy::new(algorithm, Quota { limit: limit.into(), window }, &Parameters::default()).expect("valid")
}

/// A check of one counter, identified by a number.
pub(crate) type NumberedCheck = (u8, Policy, Hits);

/// A call on the tag of `name`, in which each counter is charged for itself. Those of one number share it if their
/// algorithm is the same.
pub(crate) fn call(name: &str, checks: &[NumberedCheck]) -> TagRequest {
    let checks: Vec<_> = checks.iter().map(|check| (*check, true)).collect();
    charging(Charging::Independent, name, &checks)
}

/// A call that charges all counters or none; each check says whether it can veto.
pub(crate) fn charging(charging: Charging, name: &str, checks: &[(NumberedCheck, bool)]) -> TagRequest {
    let veto = |vetoes| if vetoes { Veto::Alone } else { Veto::Never };
    let checks: Vec<_> = checks.iter().map(|(check, vetoes)| (*check, veto(*vetoes))).collect();
    charging_with(charging, name, &checks)
}

/// A call whose checks have these vetoes.
pub(crate) fn charging_with(charging: Charging, name: &str, checks: &[(NumberedCheck, Veto)]) -> TagRequest {
    let shared = CellKey::open("test", [Entry { key: "name", value: name }].into_iter());
    let mut calls = Requests::new();
    for (descriptor, ((number, policy, hits), veto)) in checks.iter().enumerate() {
        let record = RecordId::numbered(*number, policy.algorithm()).under(policy);
        let key = match policy.algorithm().has_own_key() {
            true => shared.clone().dedicated(record),
            false => shared.clone(),
        };
        let check = Check {
            descriptor,
            record,
            policy: *policy,
            hits: *hits,
            veto: *veto,
            sync: SyncMode::Strict,
            ban: None,
            share: None,
        };
        push_check(&mut calls, charging, key, check);
    }
    calls.remove(0)
}
