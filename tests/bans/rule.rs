//! A rule with a ban, as a request to a store.

use tollgate::{
    RecordId, SyncMode,
    algorithm::{Algorithm, Charging, Parameters, Policy},
    ban::{BanCheck, BanEffect, BanMode, BanParameters, BanPolicy},
    descriptor::{Entry, Hits},
    quota::{Quota, Window},
    store::{
        key::CellKey,
        request::{Check, TagRequest, Veto},
    },
};

/// A rule: a number of requests in a minute, and the default ban.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleUnderTest {
    pub(super) algorithm: Algorithm,
    pub(super) limit: u32,
    pub(super) seconds: u32,
    pub(super) ban: BanParameters,
}

impl RuleUnderTest {
    pub(super) fn per_minute(algorithm: Algorithm, limit: u32) -> Self {
        let ban = BanParameters { mode: BanMode::Enforce, ..BanParameters::default() };
        Self { algorithm, limit, seconds: 60, ban }
    }

    pub(super) fn request(&self, name: &str) -> TagRequest {
        let quota =
            Quota { limit: self.limit.into(), window: Window::from_seconds(self.seconds).expect("in range") };
        let policy = Policy::new(self.algorithm, quota, &Parameters::default()).expect("valid");
        let ban = BanPolicy::new(&self.ban, quota).expect("valid");
        let check = Check {
            descriptor: 0,
            record: RecordId::alone(self.algorithm),
            policy,
            hits: Hits::ONE,
            veto: Veto::Never,
            sync: SyncMode::Strict,
            ban: Some(BanCheck { policy: ban, effect: BanEffect::Enforce }),
            share: None,
        };
        let key = CellKey::open("bans", [Entry { key: "client", value: name }].into_iter());
        TagRequest::new(Charging::Independent, key, check)
    }
}
