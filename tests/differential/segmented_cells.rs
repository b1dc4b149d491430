//! Tags whose cell is a hash of segments because they have many counters, against the Rust twins.

use super::batched_runs::{in_order, possible, prefetches};
use super::*;
use crate::support::{redis::guarded, stores::policy as window};

/// Histories of some forty commands.
const HISTORIES_OF_MANY: u64 = 160;

/// Records above which a packed cell becomes a hash, as `lua/decide/packed_records.lua` has it.
const MAX_PACKED: usize = 128;

/// Records of a cell, at most.
const MAX_RECORDS: usize = 65_535;

const HEADER_BYTES: usize = 7;

/// Records of three words, one of which takes more than 16 bits.
const LARGE_KIND: u8 = 9;

const UNKNOWN_KIND: u8 = 7;

/// One command: the clock step and the calls, each with its charging, checks and prefetches.
type Command = (i64, Vec<(Charging, Vec<(NumberedCheck, Veto)>, Vec<tollgate::algorithm::Prefetch>)>);

/// Forwards only: a record that has expired is forgotten at a time of the script's choice.
fn forwards() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => Just(0),
        16 => 0..=100_000_i64,
        2 => 0..=1_500_000_i64,
        1 => 0..=90_000_000_i64,
    ]
}

/// Commands of one to three calls with up to `checks` checks of counters below a number.
fn commands<Sizes: Strategy<Value = (u8, usize)>>(
    policies: &[Policy],
    sizes: Sizes,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<Command>> + use<Sizes> {
    let policies = policies.to_vec();
    let call = sizes.prop_flat_map(move |(numbers, checks)| {
        let policies = policies.clone();
        let check = (0..=numbers, hits())
            .prop_map(move |(number, hits)| (number, policies[usize::from(number) % policies.len()], hits));
        let charging = prop_oneof![4 => Just(Charging::Independent), 1 => Just(Charging::AllOrNone)];
        (charging, vec((check, prop_oneof![9 => Just(Veto::Never), 1 => veto()]), 1..=checks), prefetches())
    });
    vec((forwards(), vec(call, 1..=3)), count)
}

/// Many counters, of which most expire; then few calls, and many counters again. Each counter has one policy: hits that
/// are refunded leave the end of a longer window behind until they are dropped.
fn many() -> impl Strategy<Value = Vec<Command>> {
    let packed = policy().prop_filter("packed", |policy| !policy.algorithm().has_own_key());
    vec(prop_oneof![1 => policy(), 9 => packed], 20).prop_flat_map(|policies| {
        let sizes = || prop_oneof![1 => Just((6_u8, 4_usize)), 1 => Just((40, 20)), 4 => Just((255, 64))];
        let grown = commands(&policies, sizes(), 1..20);
        let few = commands(&policies, prop_oneof![Just((6_u8, 4_usize)), Just((255, 1))], 1..50);
        let again = commands(&policies, sizes(), 1..10);
        (grown, few, again).prop_map(|(mut grown, mut few, again)| {
            few[0].0 = 7_200_000_000;
            grown.extend(few.into_iter().chain(again));
            grown
        })
    })
}

impl Model {
    /// Replaces refunds of charges to records that have expired, or may within this call: the verdict depends on whether
    /// they have been dropped.
    fn skip_refunds_of_expired(&self, now: Timestamp, call: &mut TagRequest) {
        let records: Vec<_> = call.checks().map(|check| check.record).collect();
        for check in call.cells.iter_mut().flat_map(|cell| &mut cell.checks) {
            let known = self.states.get(&check.record);
            let has_expired = known.is_some_and(|(state, policy)| policy.expires_at(state) <= now.seconds());
            let is_repeated = records.iter().filter(|record| **record == check.record).count() > 1;
            if matches!(check.hits, Hits::RefundCharge { .. }) && (has_expired || is_repeated) {
                check.hits = Hits::Peek;
            }
        }
    }
}

fn type_of(redis: &Redis, key: &str) -> String {
    cmd("TYPE").arg(key).query(&mut redis.connect()).expect("a type")
}

fn fields(redis: &Redis, key: &str) -> BTreeMap<String, Vec<u8>> {
    cmd("HGETALL").arg(key).query(&mut redis.connect()).expect("a hash")
}

/// Numbers of changes of a key's type.
type Changes = HashMap<(String, String), usize>;

async fn replay_many(redis: &Redis, number: u64, history: Vec<Command>) -> Changes {
    let (store, mut model) = (redis.store(), Model::default());
    let (name, mut micros, keys) = (format!("many-{number}"), 7_200_000_000_i64, redis.command_keys(number));
    let key = format!("{{test|name={name}}}");
    let (mut changes, mut before) = (Changes::new(), "none".to_owned());
    for (at_step, (step, calls)) in history.iter().enumerate() {
        micros += step;
        let now = at(u64::try_from(micros).expect("not negative"));
        let (mut decided, mut expected) = (Vec::new(), Vec::new());
        for (charge, checks, prefetches) in calls {
            let mut call = with_leased(charging_with(*charge, &name, &model.resolve(checks)));
            model.skip_refunds_of_expired(now, &mut call);
            let prefetches = possible(&call, prefetches);
            expected.push(
                model.run(now, &Run { request: &call, times: 1, prefetches: &prefetches, reported: &[] }),
            );
            decided.push((call, prefetches));
        }
        let runs: Vec<_> = decided
            .iter()
            .map(|(call, prefetches)| Run { request: call, times: 1, prefetches, reported: &[] })
            .collect();
        let store = store.clone().at_time(now);
        let found = store.decide_runs(&runs, keys).await.expect("the store decides");
        for ((found, expected), run) in found.into_iter().zip(expected).zip(&runs) {
            let found = in_order(found.expect("the run is decided"));
            assert_eq!(found, expected, "history {number}, step {at_step}: {run:#?}");
        }
        let after = type_of(redis, &key);
        *changes.entry((before, after.clone())).or_default() += 1;
        before = after;
        if before == "hash" {
            check_form(redis, &key);
        }
    }
    changes
}

/// The counts of the hash are those of its segments, and no segment is large.
fn check_form(redis: &Redis, key: &str) {
    let mut fields = fields(redis, key);
    let meta = fields.remove("meta").expect("it is there");
    let word = |at: usize| u32::from_le_bytes(meta[at..at + 4].try_into().expect("a word")) as usize;
    let (segments, records) = (word(1), word(5));
    let counts: Vec<usize> =
        fields.values().map(|raw| usize::from(u16::from_le_bytes([raw[1], raw[2]]))).collect();
    assert_eq!(counts.iter().sum::<usize>(), records);
    assert!(records > MAX_PACKED / 2, "{records}");
    assert!(records <= 16 * segments, "{records} in {segments}");
    assert!(counts.iter().all(|count| (1..=80).contains(count)), "{counts:?}");
    assert!(fields.keys().all(|number| number.parse::<usize>().expect("a number") < segments));
}

#[tokio::test]
async fn tags_with_many_counters_decide_like_the_rust_twins() {
    let redis = Redis::start();
    let mut runner = TestRunner::deterministic();
    let mut changes = Changes::new();
    let replayed = replay_all(&mut runner, many(), HISTORIES_OF_MANY, |number, history| {
        replay_many(&redis, number, history)
    });
    for (change, count) in replayed.await.into_iter().flatten() {
        *changes.entry(change).or_default() += count;
    }
    let of = |from: &str, to: &str| changes.get(&(from.into(), to.into())).copied().unwrap_or_default();
    assert!(of("string", "hash") >= 50 && of("hash", "string") >= 25, "{changes:?}");
    assert!(of("hash", "hash") >= 500 && of("string", "string") >= 500, "{changes:?}");
}

/// The id of a record of a rule with some path.
fn id(number: usize, kind: u8) -> [u8; 6] {
    let hash = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    [hash[0], hash[1], hash[2], hash[3], hash[4], (((number % 16) as u8) << 4) | kind]
}

/// A packed cell, as every version writes it: records with an id and the words of a state.
fn packed(ends: u32, records: &[([u8; 6], Vec<u8>)]) -> Vec<u8> {
    let count = u16::try_from(records.len()).expect("few enough");
    let mut cell = vec![1];
    cell.extend(count.to_le_bytes());
    cell.extend(ends.to_le_bytes());
    cell.extend(records.iter().flat_map(|(id, _)| id));
    cell.extend(records.iter().flat_map(|(_, state)| state));
    cell
}

fn set(redis: &Redis, key: &str, cell: &[u8]) {
    cmd("SET").arg(key).arg(cell).arg("PX").arg(3_600_000).exec(&mut redis.connect()).expect("written");
}

/// The state of a record of a hash, under its id; an error if it is there twice.
fn record_of(redis: &Redis, key: &str, id: [u8; 6], bytes: usize) -> Option<Vec<u8>> {
    let mut found = None;
    for (name, raw) in fields(redis, key) {
        if name == "meta" {
            continue;
        }
        let count = usize::from(u16::from_le_bytes([raw[1], raw[2]]));
        let mut at = HEADER_BYTES + count * 6;
        for known in raw[HEADER_BYTES..at].chunks(6) {
            let kind = known[5] % 16;
            let size = if kind > 8 && kind % 2 == 1 { 12 } else { 8 };
            if known == id {
                assert!(found.is_none() && size == bytes);
                found = Some(raw[at..at + size].to_vec());
            }
            at += size;
        }
        assert_eq!(at, raw.len());
    }
    found
}

/// Words as a state has them.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn hash_key(name: &str) -> String {
    format!("{{test|name={name}}}")
}

/// Records of other rules than the numbered ones, with a window that ends at a second.
fn windows(count: usize, ends: u32) -> Vec<([u8; 6], Vec<u8>)> {
    (0..count).map(|number| (id(number + 1, 0), words(&[ends, 1]))).collect()
}

#[tokio::test]
async fn a_packed_cell_of_an_older_version_is_converted_with_all_of_its_records() {
    let redis = Redis::start();
    let subject = Subject::redis(redis.store());
    let (key, ends) = (hash_key("old"), at(3_600_000_000).seconds());
    let numbered = |number: u8, kind: u8| [0, 0, 0, 0, number, kind];
    let mut records = windows(1_000, ends);
    records.push((numbered(1, 0), words(&[ends, 7])));
    records.push((numbered(2, LARGE_KIND), words(&[ends + 3_600, 70_000, 0])));
    records.push((numbered(3, UNKNOWN_KIND), words(&[1, 2])));
    records.push((numbered(4, 0), words(&[at(0).seconds(), 9])));
    set(&redis, &key, &packed(ends + 3_600, &records));

    let (fixed, sliding) =
        (window(Algorithm::FixedWindow, 10, 3_600), window(Algorithm::SlidingWindow, 100_000, 3_600));
    // Checks alone convert nothing.
    let peek = call("old", &[(1, fixed, Hits::Peek), (2, sliding, Hits::Peek)]);
    let seen: Vec<_> = subject.decide(at(0), &peek).await.iter().map(|verdict| verdict.used).collect();
    assert_eq!((seen, type_of(&redis, &key)), (vec![7, 70_000], "string".into()));
    let charge = call("old", &[(1, fixed, Hits::ONE), (2, sliding, Hits::ONE), (4, fixed, Hits::ONE)]);
    let used: Vec<_> = subject.decide(at(0), &charge).await.iter().map(|verdict| verdict.used).collect();
    assert_eq!((used, type_of(&redis, &key)), (vec![8, 70_001, 1], "hash".into()));
    check_form(&redis, &key);
    let left: i64 = cmd("PTTL").arg(&key).query(&mut redis.connect()).expect("a time");
    assert!(left > 3_500_000, "{left}");

    for (number, (id, state)) in records.iter().enumerate().take(1_000).step_by(37) {
        assert_eq!(record_of(&redis, &key, *id, 8).as_ref(), Some(state), "{number}");
    }
    assert_eq!(record_of(&redis, &key, numbered(2, LARGE_KIND), 12), Some(words(&[ends + 3_600, 70_001, 0])));
    assert_eq!(record_of(&redis, &key, numbered(3, UNKNOWN_KIND), 8), Some(words(&[1, 2])));

    // Everything but the unknown record expires: the hash becomes a packed cell, which still has that one.
    for step in 0..2_000 {
        subject.decide_one(at(7_200_000_000 + step), "old", fixed, Hits::ONE).await;
        if type_of(&redis, &key) == "string" {
            break;
        }
    }
    let cell: Vec<u8> = cmd("GET").arg(&key).query(&mut redis.connect()).expect("a packed cell");
    assert!(cell[HEADER_BYTES..].windows(6).any(|id| id == numbered(3, UNKNOWN_KIND)), "{cell:?}");
}

#[tokio::test]
async fn a_full_cell_refuses_new_counters_and_decides_the_others() {
    let (redis, store) = Redis::start_store();
    let (key, ends) = (hash_key("full"), at(3_600_000_000).seconds());
    let mut records = windows(MAX_RECORDS - 1, ends);
    records.push(([0, 0, 0, 0, 1, 0], words(&[ends, 7])));
    set(&redis, &key, &packed(ends, &records));
    let decide = async |seconds: u64, number| {
        let request = call("full", &[(number, window(Algorithm::FixedWindow, 10, 3_600), Hits::ONE)]);
        let store = store.clone().at_time(at(seconds * 1_000_000));
        store.decide(&request).await.map(|verdicts| verdicts[0].1.used)
    };
    assert_eq!((decide(0, 1).await, type_of(&redis, &key)), (Ok(8), "hash".into()));
    let error = decide(1, 2).await.expect_err("no room");
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("too many records")), "{error}");
    assert_eq!((decide(1, 1).await, decide(2, 1).await), (Ok(9), Ok(10)));
    // Expired records make room.
    assert_eq!(
        (decide(3_601, 2).await, decide(3_601, 3).await, decide(3_601, 1).await),
        (Ok(1), Ok(1), Ok(1))
    );
}

#[tokio::test]
async fn without_permission_for_hashes_a_cell_stays_packed() {
    let redis = Redis::start_with(&guarded("word", &[]));
    let url = format!("redis://app:word@127.0.0.1:{}", redis.port());
    let store = RedisStore::open(&RedisSettings { key_prefix: "guarded:".into(), ..settings(&url) });
    let subject = Subject::redis(store.expect("valid settings"));
    let policy = window(Algorithm::FixedWindow, 10, 3_600);
    for round in 1..=3 {
        for numbers in [0..100_u8, 100..200, 150..250] {
            let checks: Vec<_> = numbers.clone().map(|number| (number, policy, Hits::ONE)).collect();
            for (number, verdict) in numbers.zip(subject.decide(at(0), &call("a", &checks)).await) {
                let expected =
                    if (150..200).contains(&number) { 2 * round - 1..=2 * round } else { round..=round };
                assert!(expected.contains(&verdict.used), "{number}: {verdict:?}");
            }
        }
    }
    assert_eq!(type_of(&redis, "guarded:{test|name=a}"), "string");
}

/// Commands of Redis that one call executes.
fn commands_of(redis: &Redis) -> usize {
    let text: String = cmd("INFO").arg("commandstats").query(&mut redis.connect()).expect("an answer");
    let calls = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<usize>().ok();
    text.lines().filter(|line| !line.contains("_info") && !line.contains("_config")).filter_map(calls).sum()
}

#[tokio::test]
async fn a_call_on_many_records_reads_and_writes_few() {
    let redis = Redis::start();
    let store = redis.store().at_time(at(1));
    let (key, ends) = (hash_key("wide"), at(3_600_000_000).seconds());
    let policy = window(Algorithm::FixedWindow, 10, 3_600);
    set(&redis, &key, &packed(ends, &windows(60_000, ends)));
    store.decide(&call("wide", &[(1, policy, Hits::ONE)])).await.expect("decided");
    check_form(&redis, &key);
    let longest = fields(&redis, &key).values().map(Vec::len).max().expect("segments");
    assert!(longest <= 1_200, "{longest}");
    for checks in [1, 64] {
        let numbered: Vec<_> = (1..=checks).map(|number| (number, policy, Hits::ONE)).collect();
        store.decide(&call("wide", &numbered)).await.expect("decided");
        cmd("CONFIG").arg("RESETSTAT").exec(&mut redis.connect()).expect("reset");
        store.decide(&call("wide", &numbered)).await.expect("decided");
        let commands = commands_of(&redis);
        assert!(commands <= 12, "{commands} for {checks} checks");
    }
}
