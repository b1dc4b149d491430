//! Several workers that lease one counter.

use tollgate_core::quota;

use super::*;

/// Milliseconds at which a window of a minute begins, and ends.
const BEGIN: u64 = 90_000;
const END: u64 = 150_000;

/// A counter of `policy` that several workers are asked for, in turn.
struct Workers {
    server: Server,
    /// The caches of all workers except the present one, which the server has.
    others: Vec<LocalCache>,
    refunded_at: u64,
    random: u64,
}

/// Numbers of a window.
#[derive(Debug, Default)]
struct Window {
    asked: u64,
    admitted: u64,
    /// Requests that were denied though fewer than the limit had been admitted.
    denied_early: u64,
    sent: usize,
}

impl Workers {
    fn new(count: usize) -> Self {
        let others = (1..count).map(|_| LocalCache::new(BackgroundQueue::default())).collect();
        Self { server: Server::new(), others, refunded_at: 0, random: 1 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// Asks a random worker.
    fn admits(&mut self, request: &TagRequest, millis: u64) -> bool {
        let at = self.random(self.others.len() as u64 + 1) as usize;
        if let Some(worker) = self.others.get_mut(at) {
            std::mem::swap(&mut self.server.local, worker);
        }
        self.refund(millis);
        self.server.admits(request, millis)
    }

    /// Refunds the expired tokens of all workers, every 10 ms.
    fn refund(&mut self, millis: u64) {
        if millis < self.refunded_at + 10 {
            return;
        }
        self.refunded_at = millis;
        let (now, time) = (self.server.at(millis), NOW.plus(Duration::from_millis(millis)));
        for local in self.others.iter().chain([&self.server.local]) {
            let unused = local.take_unused(now).requests;
            for check in unused.iter().flat_map(TagRequest::checks) {
                check.policy.apply(&mut self.server.states[0], time, check.hits, Charging::Independent);
            }
        }
    }

    /// Asks until the end of the window, `demand` times as often as the limit permits.
    fn run(&mut self, request: &TagRequest, limit: u64, demand: f64) -> Window {
        let mut window = Window::default();
        let max_pause = (120_000_000.0 / (limit as f64 * demand)) as u64;
        // The window before shows the demand.
        let mut micros = (BEGIN - 30_000) * 1_000;
        while micros / 1_000 < END {
            let sent = self.server.sent;
            let admits = self.admits(request, micros / 1_000);
            if micros / 1_000 >= BEGIN {
                window.asked += 1;
                window.admitted += u64::from(admits);
                window.denied_early += u64::from(!admits && window.admitted < limit);
                window.sent += self.server.sent - sent;
            }
            micros += 1 + self.random(max_pause);
        }
        window
    }
}

#[test]
fn workers_that_hold_tokens_admit_exactly_the_limit() {
    for sync in [SyncMode::Auto, SyncMode::Leased] {
        for (workers, limit) in [(2, 600), (2, 6_000), (6, 600), (6, 20_000), (20, 60_000)] {
            for demand in [0.9, 1.05, 3.0] {
                let request = one(policy(Algorithm::FixedWindow, limit), 1, sync);
                let window = Workers::new(workers).run(&request, limit.into(), demand);
                let case = format!("{sync:?}, {workers} workers, limit {limit}, {demand}: {window:?}");
                assert_eq!(window.denied_early, 0, "{case}");
                assert_eq!(window.admitted, window.asked.min(limit.into()), "{case}");
                assert!(limit == 600 || window.sent < window.asked as usize / 2, "leased: {case}");
            }
        }
    }
}

#[test]
fn a_counter_of_long_windows_is_leased_for_longer() {
    let calls = |seconds| {
        let quota =
            Quota { limit: 1_000_000, window: quota::Window::from_seconds(seconds).expect("in range") };
        let policy = Policy::new(Algorithm::FixedWindow, quota, &Parameters::default()).expect("valid");
        let (mut server, request) = (Server::new(), one(policy, 1, SyncMode::Leased));
        for at in 0..1_000 {
            assert!(server.admits(&request, at * 10));
        }
        server.sent
    };
    let [second, minute, hour] = [1, 60, 3_600].map(calls);
    assert!(
        (80..200).contains(&second) && (30..60).contains(&minute) && hour < 30,
        "{second} {minute} {hour}"
    );
}
