//! Populations of clients: which of them a rule with the default `ban` bans, and after how long.

use futures_util::future::join_all;

use super::client::{Behaviour, Client, RuleUnderTest, WhenDenied};
use super::*;

const fn client(name: &'static str, demand: f64, when_denied: WhenDenied) -> Behaviour {
    Behaviour { name, demand, is_even: false, when_denied }
}

const fn program(name: &'static str, demand: f64) -> Behaviour {
    Behaviour { name, demand, is_even: true, when_denied: WhenDenied::Ignores }
}

/// Clients that a ban must not meet where windows are fixed.
const HONEST: [Behaviour; 4] = [
    client("heeds Retry-After", 1.5, WhenDenied::Waits),
    client("backs off 1 to 32 s", 1.5, WhenDenied::BacksOff),
    client("1.2 x, 3 fast retries", 1.2, WhenDenied::Retries(&[100, 200, 400])),
    client("NAT at 1.3 x, 3 retries each", 1.3, WhenDenied::Retries(&[1_000, 2_000, 4_000])),
];

/// Clients of which no promise is made.
const DOUBTFUL: [Behaviour; 2] = [
    client("NAT at 2 x, no retries", 2.0, WhenDenied::Ignores),
    client("NAT at 2 x, 3 retries each", 2.0, WhenDenied::Retries(&[1_000, 2_000, 4_000])),
];

/// Clients that a ban is for.
const ABUSIVE: [Behaviour; 2] = [program("scraper at 3 x", 3.0), program("CI job at 10 x", 10.0)];

/// The seconds after which a client was banned, if it was.
async fn played(
    subject: &Subject,
    rule: RuleUnderTest,
    behaviour: &Behaviour,
    (minutes, seed): (u64, u64),
) -> Option<u64> {
    let mut rng = Rng::with_seed(seed);
    let request = rule.request(&format!("{} {} {seed} {:?}", behaviour.name, rule.limit, rule.algorithm));
    let per_second = f64::from(rule.limit) / f64::from(rule.seconds);
    // Windows begin at any time of the client's life.
    let begin = rng.u64(0..60_000_000);
    let mut client = Client::new(behaviour, per_second, minutes * 60, &mut rng);
    while let Some((sent, attempts)) = client.next() {
        let verdict = subject.decide(at(begin + sent), &request).await[0];
        if verdict.ban.is_some() {
            return Some(sent / 1_000_000);
        }
        client.receive((sent, attempts), &verdict);
    }
    None
}

/// Clients of one behaviour that were banned, and the median of the seconds until then.
#[derive(Clone, Copy, Debug)]
struct Result {
    percent: u64,
    median: Option<u64>,
}

impl std::fmt::Display for Result {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.median {
            None => write!(f, "0 %"),
            Some(seconds) => write!(f, "{} % after {seconds} s", self.percent),
        }
    }
}

async fn population(
    subject: &Subject,
    rule: RuleUnderTest,
    behaviour: &Behaviour,
    (minutes, clients): (u64, u64),
) -> Result {
    // A manual clock is one client's at a time: a store that has one decides without waiting.
    let seconds = join_all((0..clients).map(|seed| played(subject, rule, behaviour, (minutes, seed)))).await;
    let mut banned: Vec<u64> = seconds.into_iter().flatten().collect();
    banned.sort_unstable();
    let percent = banned.len() as u64 * 100 / clients;
    Result { percent, median: banned.get(banned.len() / 2).copied() }
}

async fn fixed_windows_ban_abusive_clients_only(subject: &Subject, (limit, clients): (u32, u64)) {
    let rule = RuleUnderTest::per_minute(Algorithm::FixedWindow, limit);
    let honest = HONEST.iter().map(|behaviour| population(subject, rule, behaviour, (10, clients)));
    let abusive = ABUSIVE.iter().map(|behaviour| population(subject, rule, behaviour, (10, clients)));
    let (honest, abusive) = tokio::join!(join_all(honest), join_all(abusive));
    for (behaviour, result) in HONEST.iter().zip(honest) {
        assert_eq!(result.percent, 0, "{} of {limit} a minute: {result}", behaviour.name);
    }
    for (behaviour, result) in ABUSIVE.iter().zip(abusive) {
        assert_eq!(result.percent, 100, "{} of {limit} a minute: {result}", behaviour.name);
        assert!(result.median.is_some_and(|median| (180..=420).contains(&median)), "{result}");
    }
}

#[tokio::test]
async fn fixed_windows_ban_abusive_clients_and_no_others() {
    let (memory, redis) = (Subject::memory(), Redis::start());
    fixed_windows_ban_abusive_clients_only(&memory, (60, 10)).await;
    fixed_windows_ban_abusive_clients_only(&memory, (600, 2)).await;
    fixed_windows_ban_abusive_clients_only(&Subject::redis(redis.store()), (60, 1)).await;
}

/// A rule for passwords: five in a quarter of an hour, and a ban after ten seconds with one too many.
fn passwords() -> RuleUnderTest {
    let ban =
        BanParameters { threshold: 10, interval: 600, mode: BanMode::Enforce, ..BanParameters::default() };
    RuleUnderTest { algorithm: Algorithm::FixedWindow, limit: 5, seconds: 900, ban }
}

/// One password in each second.
const STUFFING: Behaviour = program("password stuffing at 1/s", 180.0);
/// Twelve mistypes in twenty minutes.
const MISTYPES: Behaviour = program("12 mistypes in 20 min", 1.8);

#[tokio::test]
async fn password_stuffing_is_banned_within_seconds_and_mistypes_never() {
    let redis = Redis::start();
    for subject in [Subject::memory(), Subject::redis(redis.store())] {
        let stuffing = population(&subject, passwords(), &STUFFING, (20, 10)).await;
        assert_eq!(stuffing.percent, 100);
        assert!(stuffing.median.is_some_and(|median| (14..=17).contains(&median)), "{stuffing}");
        let mistypes = population(&subject, passwords(), &MISTYPES, (20, 10)).await;
        assert_eq!(mistypes.percent, 0);
    }
}

/// The table of docs/guides/operators.md, of 100 clients for each figure:
/// `cargo test --release --test integration -- --ignored --nocapture bans::populations`
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_populations() {
    let subject = Subject::memory();
    let algorithms = [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket];
    println!("| client | limit | fixed window | sliding window | token bucket |\n|---|---|---|---|---|");
    for behaviour in HONEST.iter().chain(&DOUBTFUL).chain(&ABUSIVE) {
        for limit in [60, 600] {
            let mut row = format!("| {} | {limit}/min |", behaviour.name);
            for algorithm in algorithms {
                let rule = RuleUnderTest::per_minute(algorithm, limit);
                let result = population(&subject, rule, behaviour, (10, 100)).await;
                row += &format!(" {result} |");
            }
            println!("{row}");
        }
    }
    for behaviour in [STUFFING, MISTYPES] {
        let mut row = format!("| {} | 5/15 min |", behaviour.name);
        for algorithm in algorithms {
            let rule = RuleUnderTest { algorithm, ..passwords() };
            row += &format!(" {} |", population(&subject, rule, &behaviour, (20, 100)).await);
        }
        println!("{row}");
    }
}
