//! Clients with a behaviour, in simulated time, and a rule with a ban, as a request to a store.

use std::{cmp::Reverse, collections::BinaryHeap};

use tollgate::SyncMode;
use tollgate::ban::{BanCheck, BanEffect, BanPolicy};
use tollgate::store::{key::CellKey, request::Check};

use super::*;

const SECOND: u64 = 1_000_000;

/// Behaviour of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behaviour {
    pub(super) name: &'static str,
    /// Requests that its users want, as a multiple of the limit.
    pub(super) demand: f64,
    /// Whether they come at equal distances, as those of programs do, and not at random.
    pub(super) is_even: bool,
    pub(super) when_denied: WhenDenied,
}

/// Reaction to a denial.
#[derive(Clone, Copy, Debug)]
pub(super) enum WhenDenied {
    /// Carries on as if nothing had happened.
    Ignores,
    /// Sends nothing before the time in `Retry-After`.
    Waits,
    /// Sends nothing for a time that doubles with each denial in a row, from one second to 32.
    BacksOff,
    /// Repeats the request after each of these times in milliseconds, until it passes.
    Retries(&'static [u64]),
}

/// Requests of one client, each with the number of attempts before it.
#[derive(Debug)]
pub(super) struct Client {
    when_denied: WhenDenied,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Sends nothing before, in microseconds.
    silent_until: u64,
    denials_in_a_row: u32,
}

impl Client {
    /// A client with a number of wanted requests per second, for a time in seconds.
    pub(super) fn new(behaviour: &Behaviour, per_second: f64, seconds: u64, rng: &mut Rng) -> Self {
        let mean = SECOND as f64 / (per_second * behaviour.demand);
        let (mut due, mut at) = (BinaryHeap::new(), rng.f64() * mean);
        while at < (seconds * SECOND) as f64 {
            due.push(Reverse((at as u64, 0)));
            at += if behaviour.is_even { mean } else { -mean * (1.0 - rng.f64()).ln() };
        }
        Self { when_denied: behaviour.when_denied, due, silent_until: 0, denials_in_a_row: 0 }
    }

    /// The next request: when it is sent, in microseconds, and its attempts before.
    pub(super) fn next(&mut self) -> Option<(u64, usize)> {
        let Reverse((due, attempts)) = self.due.pop()?;
        if due >= self.silent_until {
            return Some((due, attempts));
        }
        // What its users want meanwhile is one request afterwards.
        while self.due.peek().is_some_and(|Reverse((due, _))| *due < self.silent_until) {
            self.due.pop();
        }
        Some((self.silent_until, attempts))
    }

    /// Reacts to the response to a request.
    pub(super) fn receive(&mut self, (now, attempts): (u64, usize), verdict: &Verdict) {
        if verdict.admitted {
            self.denials_in_a_row = 0;
            return;
        }
        match self.when_denied {
            WhenDenied::Ignores => {}
            WhenDenied::Waits => {
                // `Retry-After` has whole seconds, rounded up.
                let seconds = verdict.retry_after.max(Duration::from_millis(1)).as_millis().div_ceil(1_000);
                self.silent_until = now + u64::try_from(seconds).expect("in range") * SECOND;
            }
            WhenDenied::BacksOff => {
                self.silent_until = now + (SECOND << self.denials_in_a_row.min(5));
                self.denials_in_a_row += 1;
            }
            WhenDenied::Retries(delays) => {
                if let Some(delay) = delays.get(attempts) {
                    self.due.push(Reverse((now + delay * 1_000, attempts + 1)));
                }
            }
        }
    }
}

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
