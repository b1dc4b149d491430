//! Windows of calendars in the stores: the same in memory and in Redis, by Redis' clock.

use futures_util::future::join_all;
use tollgate::clock::Timestamp;
use tollgate::config::{Options, load_files};

use crate::support::{prelude::*, stores::charging_with};

const DAY: u64 = 86_400;

/// Seconds since the epoch: four around midnights and changes of offsets, and one in the middle of a year.
const SECONDS: [u64; 5] = [1_774_738_799, 1_774_738_800, 1_793_487_600, 1_798_761_599, 1_782_900_000];

/// Zones with changes of offsets at all hours, and with odd offsets.
const ZONES: &str = "Africa/Cairo Africa/Casablanca Africa/Johannesburg Africa/Lagos Africa/Nairobi America/Adak America/Anchorage \
                     America/Argentina/Buenos_Aires America/Asuncion America/Bogota America/Caracas America/Chicago America/Denver \
                     America/Havana America/Los_Angeles America/Mexico_City America/New_York America/Nuuk America/Santiago \
                     America/Sao_Paulo America/St_Johns Antarctica/Troll Asia/Baghdad Asia/Beirut Asia/Dubai Asia/Gaza \
                     Asia/Hong_Kong Asia/Jerusalem Asia/Kathmandu Asia/Kolkata Asia/Seoul Asia/Singapore Asia/Tehran Asia/Tokyo \
                     Asia/Yangon Atlantic/Azores Australia/Adelaide Australia/Eucla Australia/Lord_Howe Australia/Sydney \
                     Europe/Berlin Europe/Dublin Europe/Istanbul Europe/Lisbon Europe/London Europe/Moscow Pacific/Apia \
                     Pacific/Auckland Pacific/Chatham Pacific/Kiritimati";

/// The policies of limits with these windows, of ten hits each.
fn policies(windows: &[String]) -> Vec<Policy> {
    let rules: String = (0..)
        .zip(windows)
        .map(|(number, window): (u32, _)| {
            format!("- {{key: k{number}, rate_limit: {{requests_per_unit: 10, {window}}}}}\n")
        })
        .collect();
    let file = format!("domain: d\ndescriptors:\n{rules}");
    let loaded = load_files([("a.yaml".to_owned(), file.into_bytes())], Options::default()).expect("valid");
    let root = &loaded.rules.domain("d").expect("stated").root;
    let policy = |number| {
        let key = format!("k{number}");
        root.rule(&[Entry { key: &key, value: "" }]).expect("stated").policy().expect("limited")
    };
    (0..windows.len()).map(policy).collect()
}

fn at_second(second: u64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn end_of(policy: &Policy, at: Timestamp) -> Timestamp {
    policy.prefetched_until(at).expect("a window")
}

/// Charges a counter at an instant, at the last one of its window and at the first one of the next, in both stores.
async fn compare((lua, memory): (&Subject, &Subject), name: String, policy: Policy, now: Timestamp) {
    let end = end_of(&policy, now);
    let last = Timestamp::from_micros(end.as_micros() - 1);
    let mut seen = Vec::new();
    for at in [now, last, end] {
        let found = lua.decide_one(at, &name, policy, Hits::charge(6)).await;
        let expected = memory.decide_one(at, &name, policy, Hits::charge(6)).await;
        assert_eq!(found, expected, "{name} at {at:?}");
        seen.push((found.admitted, found.used, found.reset_after));
    }
    let next = end_of(&policy, end);
    let expected =
        [(true, 6, end.since(now)), (false, 12, Duration::from_micros(1)), (true, 6, next.since(end))];
    assert_eq!(seen, expected, "{name}");
}

#[tokio::test]
async fn memory_and_redis_reset_at_the_same_instants_in_fifty_zones() {
    let units = ["day", "week", "month, anchor: 31", "year, anchor: 04-06"];
    let windows: Vec<String> = ZONES
        .split_whitespace()
        .flat_map(|zone| units.map(|unit| format!("timezone: {zone}, unit: {unit}")))
        .collect();
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    let policies = policies(&windows);
    for second in SECONDS {
        // A store of its own for each, since its clock is set.
        let memories: Vec<_> = windows.iter().map(|_| Subject::memory()).collect();
        let comparisons = windows.iter().zip(&policies).zip(&memories).map(|((window, policy), memory)| {
            compare((&lua, memory), format!("{window} {second}"), *policy, at_second(second))
        });
        join_all(comparisons).await;
    }
}

#[tokio::test]
async fn a_key_lives_until_the_end_of_its_window() {
    let redis = Redis::start();
    let store = tollgate::store::Store::new(redis.store());
    for (number, policy) in policies(&["unit: month, timezone: Asia/Tokyo".into()]).into_iter().enumerate() {
        let name = format!("ttl{number}");
        let request = call(&name, &[(0, policy, Hits::ONE)]);
        let mut decisions = store.decide(std::slice::from_ref(&request), None).await;
        let verdict = decisions.remove(0).expect("the store decides")[0].1;
        assert_eq!(verdict.reset_after, end_of(&policy, verdict.decided_at).since(verdict.decided_at));
        let (time, ttl): ((u64, u64), u64) = redis::pipe()
            .atomic()
            .cmd("TIME")
            .cmd("PTTL")
            .arg(request.cells[0].key.as_bytes())
            .query(&mut redis.connect())
            .expect("the server responds");
        let end = (time.0 * 1_000 + time.1 / 1_000 + ttl).div_ceil(1_000);
        // The two times are not read at the same moment.
        let expected = u64::from(end_of(&policy, verdict.decided_at).seconds());
        assert!(end.abs_diff(expected) <= 1, "{end} instead of {expected}");
    }
}

/// Decides these calls at the same time, by the server's clock.
async fn decide_all(store: &RedisStore, calls: &[(String, Policy)]) -> Vec<Verdict> {
    let store = tollgate::store::Store::new(store.clone());
    let decide = |(name, policy): &(String, Policy)| {
        let (store, request) = (store.clone(), call(name, &[(0, *policy, Hits::ONE)]));
        async move {
            let mut decisions = store.decide(std::slice::from_ref(&request), None).await;
            decisions.remove(0).expect("the store decides")[0].1
        }
    };
    join_all(calls.iter().map(decide)).await
}

#[tokio::test]
async fn a_call_with_the_windows_of_another_time_is_decided_once_by_those_of_redis() {
    let redis = Redis::start();
    let windows = ["unit: day, timezone: Europe/Berlin".into(), "unit: year, timezone: UTC".into()];
    let policies = policies(&windows);
    let calls: Vec<_> = (0..12).map(|number| (format!("far{}", number % 6), policies[number % 2])).collect();
    for (round, days) in (1_u64..).zip([400_i64, -400, 3, -3, 20_000]) {
        let store = redis.store();
        assert!(store.connected().await);
        store.assume_ahead(days * i64::try_from(DAY).expect("small") * 1_000_000);
        let verdicts = decide_all(&store, &calls).await;
        for ((_, policy), verdict) in calls.iter().zip(&verdicts) {
            let end = end_of(policy, verdict.decided_at);
            assert_eq!(verdict.reset_after, end.since(verdict.decided_at), "{days} days");
        }
        // Each counter was charged twice in each round.
        let most = verdicts.iter().map(|verdict| verdict.used).max();
        assert_eq!(most, Some(2 * round), "{days} days");
    }
}

#[tokio::test]
async fn a_refund_is_of_the_window_in_which_its_charge_was_made() {
    let redis = Redis::start();
    let policy = policies(&["unit: day, timezone: Europe/Berlin".into()])[0];
    for subject in [Subject::redis(redis.store()), Subject::memory()] {
        let first = at_second(SECONDS[4]);
        let refund = |made_at| Hits::RefundCharge { amount: NonZeroU64::MIN, made_at };
        let used = async |at, hits| subject.decide_one(at, "refund", policy, hits).await.used;
        assert_eq!(used(first, Hits::charge(3)).await, 3);
        assert_eq!(used(first, refund(first)).await, 2);
        let next = end_of(&policy, first);
        assert_eq!(used(next, Hits::charge(3)).await, 3);
        assert_eq!(used(next, refund(first)).await, 3);
        assert_eq!(used(next, refund(next)).await, 2);
    }
}

#[tokio::test]
async fn windows_of_calendars_and_of_fixed_lengths_are_charged_together_or_not_at_all() {
    let redis = Redis::start();
    let policies =
        policies(&["unit: minute".into(), "unit: month, timezone: Asia/Kolkata, anchor: 15".into()]);
    for subject in [Subject::redis(redis.store()), Subject::memory()] {
        let request = |hits: [u64; 2]| {
            let checks = [0, 1].map(|at| {
                ((u8::try_from(at).expect("small"), policies[at], Hits::charge(hits[at])), Veto::Alone)
            });
            charging_with(Charging::AllOrNone, "both", &checks)
        };
        let now = at_second(SECONDS[2]);
        for (hits, admitted, used) in
            [([4, 8], [true, true], [4, 8]), ([4, 8], [true, false], [4, 8]), ([4, 2], [true, true], [8, 10])]
        {
            let verdicts = subject.decide(now, &request(hits)).await;
            assert_eq!([0, 1].map(|at| verdicts[at].admitted), admitted);
            // The hits of a denied check are reported with it.
            let counted = [0, 1].map(|at| verdicts[at].used);
            assert_eq!(counted, used, "{verdicts:?}");
        }
    }
}
