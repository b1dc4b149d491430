//! Sketches against exact counts.

use std::{collections::HashMap, thread, time::Instant};

use proptest::prelude::*;

use super::sampler::{Queue, Sample, Sampler};
use super::sketches::{LastMinute, Sketches, Window};
use super::space_saving::{MAX_KEYS, MIN_KEYS, Memory, Summary};
use super::*;

const REQUESTED: fn(&Window) -> &Summary = |window| &window.requested;
const DENIED: fn(&Window) -> &Summary = |window| &window.denied;
const MINUTE: fn(&DomainCounts) -> &SpanCounts = |counts| &counts.minute;
const RECENT: fn(&DomainCounts) -> &SpanCounts = |counts| &counts.recent;

type Exact = HashMap<String, u64>;

fn sample(key: &str, requested: u64, denied: u64) -> Sample<'_> {
    Sample { domain: "edge", key, requested, denied }
}

/// Keys of very different frequency, with hits, and whether memory is short at that point.
fn stream() -> impl Strategy<Value = Vec<(u32, u64, Memory)>> {
    let key = prop_oneof![0_u32..10, 0_u32..2_000, 0_u32..20_000];
    let memory = prop_oneof![9 => Just(Memory::Ample), 1 => Just(Memory::Short)];
    prop::collection::vec((key, 1_u64..20, memory), 1..6_000)
}

/// Compares the estimates of keys with their exact hits.
fn check(
    estimate: impl Fn(&str) -> Option<(u64, u64)>,
    absent: u64,
    exact: &Exact,
) -> Result<(), TestCaseError> {
    for (key, hits) in exact {
        match estimate(key) {
            Some((most, error)) => {
                prop_assert!(most >= *hits, "{key}: {most} for {hits}");
                prop_assert!(most - error <= *hits, "{key}: {most} less {error} for {hits}");
            }
            None => prop_assert!(*hits <= absent, "{key} had {hits} and is not there"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn errors_of_a_summary_stay_within_the_stated_and_the_promised_bound(stream in stream()) {
        let (mut summary, mut exact) = (Summary::default(), Exact::new());
        for (key, hits, memory) in &stream {
            let key = format!("{key}");
            summary.add(&key, *hits, *memory);
            *exact.entry(key).or_default() += hits;
        }
        let estimates: HashMap<_, _> = summary.iter().collect();
        prop_assert!(estimates.len() <= MAX_KEYS);
        check(|key| estimates.get(key).map(|it| (it.weight, it.error)), summary.floor, &exact)?;
        let all: u64 = exact.values().sum();
        let is_short = stream.iter().any(|(_, _, memory)| *memory == Memory::Short);
        let stay = if is_short { MIN_KEYS } else { MAX_KEYS } as u64 * 3 / 4;
        prop_assert!(summary.floor <= all / stay, "{} of {all}", summary.floor);
    }

    #[test]
    fn errors_of_merged_windows_stay_within_the_promised_bound(
        windows in prop::collection::vec(stream(), 1..7),
    ) {
        let (mut minute, mut exact) = (LastMinute::default(), Exact::new());
        let mut denied = Exact::new();
        for (window, stream) in (0..).zip(&windows) {
            for (key, hits, _) in stream {
                let (key, over) = (format!("k={key}"), if key % 3 == 0 { *hits } else { 0 });
                minute.add(&sample(&key, *hits, over), window, Memory::Ample);
                *denied.entry(key.clone()).or_default() += over;
                *exact.entry(key).or_default() += hits;
            }
        }
        for (ranking, exact) in [(REQUESTED, exact), (DENIED, denied)] {
            let estimates: HashMap<_, _> =
                minute.counts(ranking, usize::MAX, |_| true).top(usize::MAX).into_iter().map(|talker| (talker.key, (talker.hits, talker.error))).collect();
            let promised = exact.values().sum::<u64>() / (MAX_KEYS as u64 * 3 / 4);
            check(|key| estimates.get(key).copied(), promised, &exact)?;
            prop_assert!(estimates.values().all(|(_, error)| *error <= promised));
        }
    }
}

fn counted(parts: &[Vec<(u32, u64, Memory)>], max_bytes: usize) -> (Vec<Vec<DomainCounts>>, Exact, Exact) {
    let (mut exact, mut denied) = (Exact::new(), Exact::new());
    let counts = |stream: &Vec<(u32, u64, Memory)>| {
        let mut sketches = Sketches::default();
        for (key, hits, _) in stream {
            let (key, over) = (format!("k={key}"), if key % 3 == 0 { *hits } else { 0 });
            sketches.add(&sample(&key, *hits, over));
            *denied.entry(key.clone()).or_default() += over;
            *exact.entry(key).or_default() += hits;
        }
        sketches.advance(1);
        let mut counts: Vec<_> = sketches.counts("edge").into_iter().collect();
        counts::fit(&mut counts, max_bytes);
        let text = serde_json::to_string(&counts).expect("JSON");
        assert!(text.len() < max_bytes + 400, "{} bytes", text.len());
        serde_json::from_str(&text).expect("readable")
    };
    (parts.iter().map(counts).collect(), exact, denied)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merged_counts_of_instances_bound_the_exact_hits(
        parts in prop::collection::vec(stream(), 1..5),
        max_bytes in prop_oneof![0_usize..2_000, 2_000_usize..20_000],
    ) {
        let (instances, exact, denied) = counted(&parts, max_bytes);
        for span in [MINUTE, RECENT] {
            let merged = merge(instances.iter().map(Vec::as_slice), span);
            for (counts, exact) in [(&merged["edge"].heaviest, &exact), (&merged["edge"].denied, &denied)] {
                let top = counts.top(usize::MAX);
                prop_assert!(top.is_sorted_by(|a, b| a.hits >= b.hits));
                let estimates: HashMap<_, _> =
                    top.into_iter().map(|talker| (talker.key, (talker.hits, talker.error))).collect();
                check(|key| estimates.get(key).copied(), counts.floor, exact)?;
            }
        }
    }
}

#[test]
fn merged_counts_of_few_keys_are_exact() {
    let part = |hits| vec![(1, hits, Memory::Ample), (3, 2 * hits, Memory::Ample)];
    let (mut instances, ..) = counted(&[part(5), part(7), vec![(2, 1, Memory::Ample)]], 20_000);
    // Without traffic there.
    instances.push(Vec::new());
    let merged = merge(instances.iter().map(Vec::as_slice), MINUTE);
    let top = merged["edge"].top("edge", 2);
    let keys = |talkers: &[Talker]| -> Vec<_> {
        talkers.iter().map(|talker| (talker.key.clone(), talker.hits, talker.error)).collect()
    };
    assert_eq!(keys(&top.heaviest), [("k=3".to_owned(), 24, 0), ("k=1".to_owned(), 12, 0)]);
    assert_eq!(keys(&top.denied), [("k=3".to_owned(), 24, 0)]);
}

#[test]
fn recent_counts_are_those_of_the_last_complete_window() {
    let mut sketches = Sketches::default();
    for (window, hits) in [(0, 10), (1, 20), (2, 40)] {
        sketches.advance(window);
        sketches.add(&sample("k=v", hits, 0));
    }
    let hits = |sketches: &Sketches| {
        let counts = sketches.counts("edge").expect("a sketch");
        [counts.minute, counts.recent]
            .map(|span| span.heaviest.top(1).first().map_or(0, |talker| talker.hits))
    };
    assert_eq!(hits(&sketches), [70, 20]);
    sketches.advance(3);
    assert_eq!(hits(&sketches), [70, 40]);
    sketches.advance(4);
    assert_eq!(hits(&sketches), [70, 0]);
}

#[test]
fn a_minute_drops_older_windows_and_returns_the_heaviest_first() {
    let mut minute = LastMinute::default();
    minute.add(&sample("old=", 100, 100), 0, Memory::Ample);
    minute.add(&sample("b=", 3, 0), 5, Memory::Ample);
    minute.add(&sample("a=", 3, 1), 5, Memory::Ample);
    let keys = |minute: &LastMinute, ranking, limit| -> Vec<_> {
        minute
            .counts(ranking, limit, |_| true)
            .top(limit)
            .into_iter()
            .map(|talker| (talker.key, talker.hits, talker.error))
            .collect()
    };
    assert_eq!(keys(&minute, REQUESTED, 2), [("old=".to_owned(), 100, 0), ("a=".to_owned(), 3, 0)]);
    assert!(minute.expire(6));
    assert_eq!(keys(&minute, REQUESTED, 9), [("a=".to_owned(), 3, 0), ("b=".to_owned(), 3, 0)]);
    assert_eq!(keys(&minute, DENIED, 9), [("a=".to_owned(), 1, 0)]);
    assert!(!minute.expire(11));
    assert_eq!(minute.bytes(), 0);
}

#[test]
fn all_sketches_together_stay_within_their_bound_and_the_heavy_keys_in_them() {
    let mut sketches = Sketches::default();
    let filler = "x".repeat(MAX_TEXT_BYTES - 20);
    let (mut largest, domains) = (0, sketches::MAX_DOMAINS as u64 + 2);
    for window in 0..12 {
        sketches.advance(window);
        for at in 0..200_000_u64 {
            let domain = format!("domain-{}", at % domains);
            // One hit in ten is of the same key.
            let key =
                if at / domains % 10 == 7 { "heavy=".to_owned() } else { format!("{window}-{at}-{filler}") };
            let sample = Sample { domain: &domain, key: &key, requested: 1, denied: 1 };
            let has_place = sketches.add(&sample);
            assert_eq!(has_place, at % domains < domains - 2);
        }
        largest = largest.max(sketches.bytes);
    }
    assert!(largest > sketches::MAX_BYTES, "memory was not short");
    assert!(largest < 28 << 20, "{largest} bytes");
    for domain in sketches.domains() {
        let top = sketches.counts(&domain).expect("a sketch").minute;
        assert_eq!(top.heaviest.top(1)[0].key, "heavy=", "{domain}");
        assert_eq!(top.denied.top(1)[0].key, "heavy=", "{domain}");
    }
    sketches.advance(18);
    assert_eq!((sketches.bytes, sketches.domains().len()), (0, 0));
    assert!(sketches.add(&Sample { domain: "another", ..sample("k", 1, 0) }));
}

/// Sketches of a busy thread, at a reduced size.
fn sketches_of(keys: impl Iterator<Item = u64>, is_denied: impl Fn(u64) -> bool) -> Sketches {
    let (queue, active, mut sketches) = (Queue::default(), Active::default(), Sketches::default());
    let mut sampler = Sampler::new(Queue::clone(&queue));
    for (at, key) in keys.enumerate() {
        let now = u32::try_from(at / 20_000).expect("few");
        sampler.record_domain("edge", now, &active);
        sampler.record("edge", &[Entry { key: "k", value: &key.to_string() }], 1, is_denied(key));
        if at % 20_000 == 19_999 {
            sketches.advance(u64::from(now) / 100);
            let mut queue = queue.lock();
            queue.iter().for_each(|sample| assert!(sketches.add(&sample)));
            queue.clear();
        }
    }
    sketches
}

#[test]
fn five_heavy_keys_are_found_among_a_million_that_come_once() {
    let mut random = fastrand::Rng::with_seed(7);
    let keys = (0..2_000_000_u64).map(|at| if random.u8(..50) == 0 { random.u64(..5) } else { 5 + at });
    let sketches = sketches_of(keys, |key| key == 3 || key % 1_000 == 0);
    let top = sketches.counts("edge").expect("a sketch").minute.top("edge", 10);
    let mut found: Vec<_> = top.heaviest[..5].iter().map(|talker| &*talker.key).collect();
    found.sort_unstable();
    assert_eq!(found, ["k=0", "k=1", "k=2", "k=3", "k=4"]);
    // 8,000 each.
    assert!(
        top.heaviest[..5].iter().all(|talker| (6_000..10_500).contains(&talker.hits)),
        "{:?}",
        top.heaviest
    );
    assert!(top.heaviest.iter().all(|talker| talker.error <= 2_000_000 * 11 / 10 / 672));
    let mut denied = [&*top.denied[0].key, &*top.denied[1].key];
    denied.sort_unstable();
    assert_eq!(denied, ["k=0", "k=3"]);
}

#[test]
fn rare_denials_are_counted_exactly() {
    let keys = (0..1_000_000_u64).map(|at| if at % 100_000 == 0 { 1 } else { 2 });
    let sketches = sketches_of(keys, |key| key == 1);
    let top = sketches.counts("edge").expect("a sketch").minute.top("edge", 10);
    let denied: Vec<_> = top.denied.iter().map(|talker| (&*talker.key, talker.hits, talker.error)).collect();
    assert_eq!(denied, [("k=1", 10, 0)]);
    assert_eq!(top.heaviest[0].key, "k=2");
}

#[test]
fn samples_are_reported_within_a_second_also_of_threads_that_ended() {
    start(true).expect("a thread");
    let entries = [Entry { key: "k", value: "v" }, Entry { key: "path", value: "/a" }];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| record("reported within a second", &entries, 2, true)));
        }
    });
    record("only read", &entries, 0, false);
    let active = active_domains();
    assert!(["reported within a second", "only read"].iter().all(|name| active.iter().any(|it| it == name)));
    let entry = |key: &str, value: &str| OwnedEntry { key: key.to_owned(), value: value.to_owned() };
    let descriptor = Some(vec![entry("k", "v"), entry("path", "/a")]);
    let expected = [Talker { key: "k=v,path=/a".to_owned(), descriptor, hits: 400, error: 0 }];
    let deadline = Instant::now() + Duration::from_secs(20);
    let top = |domain: &str| {
        let counts = counts(usize::MAX).into_iter().find(|counts| counts.domain == domain);
        counts.map(|counts| counts.minute.top(domain, 10))
    };
    while top("reported within a second").is_none_or(|top| top.heaviest != expected) {
        assert!(Instant::now() < deadline, "{:?}", counts(usize::MAX));
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(top("reported within a second").expect("among all").denied, expected);
    assert!(top("only read").is_none());
    assert!(COLLECTOR.sketches.lock().bytes > 0);
}

#[test]
fn a_domain_is_active_for_a_minute_and_then_dropped() {
    let active = Active::default();
    active.record("early", 0);
    active.record("late", 100);
    assert_eq!(active.domains(600), ["late", "early"]);
    active.record("early", 601);
    assert_eq!(active.domains(601), ["early", "late"]);
    assert_eq!(active.domains(100 + ACTIVE_TICKS + 1), ["early"]);
    active.expire(100 + ACTIVE_TICKS + 1);
    assert_eq!(active.0.lock().len(), 1);
}

#[test]
fn names_are_bounded_in_number_and_in_length() {
    let active = Active::default();
    active.record(&"x".repeat(MAX_TEXT_BYTES + 1), 0);
    assert!(active.domains(0).is_empty());
    (0..MAX_DOMAINS + 10).for_each(|at| active.record(&format!("{at}"), 0));
    active.record("the latest", 1);
    let domains = active.domains(1);
    assert_eq!((domains.len(), &*domains[0]), (MAX_DOMAINS, "the latest"));
}
