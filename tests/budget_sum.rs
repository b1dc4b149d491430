//! The sum of the hits that many requests use of one budget, by the stated rule, however they are settled.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::time::{Instant, sleep_until};
use tollgate::proto::tollgate::reservation::v1::{ReserveRequest, reserve_response::Code as Reserved};

use crate::reservations::{Reserving, descriptors, reservations, with_hits};
use crate::support::http2::{Leaver, SHOULD_RATE_LIMIT};
use crate::support::{cluster, prelude::*};

/// Requests to each store, unless `BUDGET_REQUESTS` states another number.
const REQUESTS: u64 = 10_000;

const LIMIT: u32 = 4_000_000_000;

/// A request must not take as long, so that it is longer than any delay of a busy machine.
const TTL: Duration = Duration::from_secs(15);

/// Time after which a lease has ended, and is remembered for almost its time to live more.
const LATE: Duration = Duration::from_secs(16);

const CALLERS: u64 = 48;

/// Requests in a second at most: a counter has up to 65,536 leases.
const MAX_RATE: u64 = 4_000;

pub(crate) const RESERVE: &str = "/tollgate.reservation.v1.ReservationService/Reserve";

const USER: (&str, &str) = ("user", "me");

const MALFORMED: [&str; 6] = ["", "-", "none", "order 66", "0000000000000000", "123456789abcdef"];

/// Course of a request after its reservation.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Settled,
    /// Settled several times, with other hits.
    Repeated,
    /// Settled without usage.
    Unknown,
    /// The caller leaves before or after the answer.
    Cancelled,
    /// Only a settlement with a malformed lease.
    Malformed,
    /// Only a settlement, repeated, of a lease that the counter does not have.
    Foreign,
    /// Settled after its end.
    Late,
    /// Never settled.
    Abandoned,
    /// By an id of the caller, with retries.
    Named,
}

impl Fate {
    fn random(random: &mut fastrand::Rng) -> Self {
        match random.u32(..100) {
            0..45 => Self::Settled,
            45..57 => Self::Repeated,
            57..62 => Self::Unknown,
            62..72 => Self::Cancelled,
            72..78 => Self::Malformed,
            78..83 => Self::Foreign,
            83..89 => Self::Late,
            89..92 => Self::Abandoned,
            _ => Self::Named,
        }
    }
}

/// A caller, and what its requests have used.
struct Caller {
    client: Client,
    service: Reserving,
    leaver: Leaver,
    random: fastrand::Rng,
    used: u64,
    /// Leases to settle late, and when.
    late: VecDeque<(Instant, String, u64)>,
}

impl Caller {
    async fn request(&mut self) {
        let (amount, used) = (self.random.u64(1..=400), self.random.u64(1..=600));
        self.used += match Fate::random(&mut self.random) {
            Fate::Settled => {
                let lease = self.reserve(amount).await;
                self.settle(&lease, used).await;
                used
            }
            Fate::Repeated => {
                let lease = self.reserve(amount).await;
                for hits in [used, 0, 999, used] {
                    self.settle(&lease, hits).await;
                }
                used
            }
            Fate::Unknown => {
                let lease = self.reserve(amount).await;
                self.settle(&lease, 0).await;
                amount
            }
            Fate::Cancelled => self.cancel(amount).await,
            Fate::Malformed => {
                let lease = MALFORMED[self.random.usize(..MALFORMED.len())];
                self.settle(lease, used).await;
                self.settle(lease, used).await;
                2 * used
            }
            Fate::Foreign => {
                let lease = LeaseId::random().to_string();
                self.settle(&lease, used).await;
                self.settle(&lease, 7).await;
                used
            }
            Fate::Late => {
                let lease = self.reserve(amount).await;
                // Sometimes without usage: then it was charged what it had reserved.
                let hits = if self.random.bool() { used } else { 0 };
                self.late.push_back((Instant::now() + LATE, lease, hits));
                if hits > 0 { hits } else { amount }
            }
            Fate::Abandoned => {
                self.reserve(amount).await;
                amount
            }
            Fate::Named => self.name(amount, used).await,
        };
        while self.late.front().is_some_and(|(at, ..)| *at <= Instant::now()) {
            self.settle_late().await;
        }
    }

    async fn settle_late(&mut self) {
        if let Some((at, lease, hits)) = self.late.pop_front() {
            sleep_until(at).await;
            self.settle(&lease, hits).await;
            self.settle(&lease, 999 * hits.min(1)).await;
        }
    }

    async fn reserve(&mut self, amount: u64) -> String {
        let response =
            self.client.call(with_hits(request("llm", &[&[USER]]), amount)).await.expect("an answer");
        lease_of(&response).expect("a lease")
    }

    async fn settle(&mut self, lease: &str, used: u64) {
        let settlement = with_hits(request("llm", &[&[USER, ("lease", lease)]]), used);
        self.client.call(settlement).await.expect("an answer");
    }

    /// Leaves after some time, by either service.
    async fn cancel(&mut self, amount: u64) -> u64 {
        let patience = Duration::from_micros(self.random.u64(1..20_000));
        if self.random.bool() {
            let request = with_hits(request("llm", &[&[USER]]), amount);
            self.leaver.call(SHOULD_RATE_LIMIT, &request, patience).await;
        } else {
            let (domain, descriptors) = ("llm".to_owned(), descriptors(&[USER]));
            let request = ReserveRequest { domain, descriptors, amount, id: String::new() };
            self.leaver.call(RESERVE, &request, patience).await;
        }
        // On an idle connection, a response that the reset discarded is released with the next frame only.
        self.leaver.close().await;
        0
    }

    async fn name(&mut self, amount: u64, used: u64) -> u64 {
        let id = format!("order {}", self.random.u64(..));
        for repeated in [amount, amount, 1] {
            assert_eq!(self.service.reserve(&id, &[USER], repeated).await.0, Reserved::Reserved);
        }
        assert_eq!(self.service.reserve(&id, &[USER], amount + 1).await.0, Reserved::IdConflict);
        for hits in [used, 0, 999] {
            self.service.commit(&id, USER, hits).await;
        }
        assert_eq!(self.service.reserve(&id, &[USER], amount).await.0, Reserved::IdConflict);
        used
    }
}

/// Sends requests to a tollgate with this store, and waits until what is left is the limit without what they used.
async fn uses_the_sum(name: &str, store: &[&str]) {
    let number = |name| env::var(name).ok().and_then(|number| number.parse().ok());
    let (requests, seed) = (number("BUDGET_REQUESTS").unwrap_or(REQUESTS), number("BUDGET_SEED"));
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("{name}: seed {seed}");
    let tollgate = Tollgate::serving(
        &format!(
            "domain: llm\ndescriptors:\n- key: user\n  rate_limit: {{unit: year, requests_per_unit: {LIMIT}, reserve: \
         {{ttl: {}s}}}}\n",
            TTL.as_secs()
        ),
        &[store, &["--store-timeout", "20s"]].concat(),
    );
    let (sent, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let (client, service) = (tollgate.client().await, Reserving(reservations(&tollgate).await));
        let random = fastrand::Rng::with_seed(seed ^ number);
        let leaver = Leaver::new(tollgate.grpc_port);
        let mut caller = Caller { client, service, leaver, random, used: 0, late: VecDeque::new() };
        let sent = Arc::clone(&sent);
        callers.spawn(async move {
            loop {
                let at = sent.fetch_add(1, SeqCst);
                if at >= requests {
                    break;
                }
                sleep_until(began + Duration::from_secs_f64(at as f64 / MAX_RATE as f64)).await;
                caller.request().await;
            }
            while !caller.late.is_empty() {
                caller.settle_late().await;
            }
            caller.used
        });
    }
    let used: u64 = callers.join_all().await.into_iter().sum();
    let mut client = tollgate.client().await;
    let mut left = async || {
        let peek = with_hits(request("llm", &[&[USER]]), 0);
        client.call(peek).await.expect("an answer").statuses[0].limit_remaining
    };
    // All leases end.
    sleep(TTL).await;
    let expected = u64::from(LIMIT) - used;
    let left = read_until(async || u64::from(left().await), |left| *left == expected).await;
    let counted = u64::from(LIMIT) - left;
    println!("{name}: {requests} requests used {used}, {counted} counted, in {:?}", began.elapsed());
}

#[tokio::test]
async fn a_budget_counts_the_sum_of_what_was_used() {
    let redis = Redis::start();
    uses_the_sum("memory", &[]).await;
    uses_the_sum("redis", &["--store", &redis.url()]).await;
    uses_the_sum("cluster", &["--store", &cluster::shared().url(), "--key-prefix", "budget-sum"]).await;
}
