use super::*;

/// Number of short paths with values that fit.
const MAX_VALUES: usize = MAX_BYTES / MIN_PATH_BYTES;

/// A full registry, with the counters of each series.
fn full() -> (Registry, Vec<Arc<Striped<KINDS>>>) {
    let mut registry = Registry::default();
    let used = (0..MAX_RULES).map(|number| {
        let (series, room) = registry.of_rule("edge", &number.to_string());
        assert_eq!(room, Room::Own);
        series.counters()
    });
    let used = used.collect();
    (registry, used)
}

/// Evicts until `has_left`: a test that publishes all counts holds each series for a moment.
fn evict_until(registry: &mut Registry, values_are_full: bool, has_left: impl Fn(&Registry) -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !has_left(registry) {
        assert!(std::time::Instant::now() < deadline, "it stays");
        registry.rules = MAX_RULES;
        registry.evict_unused(values_are_full);
        std::thread::yield_now();
    }
}

#[test]
fn rules_beyond_the_bound_share_the_series_of_their_domain() {
    let (mut registry, _used) = full();
    assert_eq!(registry.of_rule("edge", "7").1, Room::Own, "it has a series");
    for rule in ["new", "newer"] {
        let (series, room) = registry.of_rule("edge", rule);
        assert_eq!((&*series.domain, &*series.path, room), ("edge", OTHER, Room::Shared));
    }
    assert_eq!(&*registry.of_rule("mesh", "new").0.domain, "mesh");
    for number in 0..2 * MAX_OTHERS {
        let _ = registry.of_rule(&format!("domain {number}"), "new");
    }
    assert_eq!(&*registry.of_rule("one more", "new").0.domain, OTHER);
    assert_eq!(&*registry.of_rule("edge", "newest").0.domain, "edge");
    assert_eq!(registry.series.len(), MAX_RULES + MAX_OTHERS + 1);
}

#[test]
fn unused_rules_are_evicted_when_there_is_no_room() {
    let (mut registry, mut used) = full();
    registry.evict_unused(false);
    assert_eq!(registry.of_rule("edge", "new").1, Room::Shared, "all are used");
    used.truncate(MAX_RULES - 2);
    evict_until(&mut registry, false, |registry| registry.rules == MAX_RULES - 2);
    assert_eq!(registry.of_rule("edge", "new").1, Room::Own);
    assert_eq!(registry.of_rule("edge", "newer").1, Room::Own);
    assert_eq!(registry.of_rule("edge", "newest").1, Room::Shared);
    used.clear();
    let first = registry.find("edge", "7", "7").expect("known");
    registry.rules = 0;
    registry.evict_unused(false);
    assert!(registry.series.len() > MAX_RULES, "nothing is evicted while there is room");
    evict_until(&mut registry, false, |registry| registry.series.len() == 2);
    let left: Vec<_> = registry.series.values().map(|series| &*series.path).collect();
    assert_eq!(left, [OTHER, "7"], "a series in use stays");
    assert_eq!((first.kind(), registry.rules, registry.others), (SeriesKind::Rule, 1, 1));
}

#[test]
fn unused_domains_are_evicted_for_new_ones() {
    let mut registry = Registry { rules: MAX_RULES, ..Registry::default() };
    for number in 0..=MAX_OTHERS {
        let _ = registry.of_rule(&format!("domain {number}"), "new");
    }
    assert_eq!(&*registry.of_rule("one more", "new").0.domain, OTHER);
    registry.evict_unused(false);
    registry.rules = MAX_RULES;
    assert_eq!(&*registry.of_rule("one more", "new").0.domain, "one more");
}

#[test]
fn paths_with_values_are_bounded_in_number_and_in_bytes_and_evicted_with_their_rules() {
    let mut registry = Registry::default();
    let of = |registry: &mut Registry, path: &str| registry.of_values("d", path, "a", 1);
    let used: Vec<_> = (0..MAX_VALUES)
        .map(|number| of(&mut registry, &format!("a_{number}")).expect("room").counters())
        .collect();
    assert!(of(&mut registry, "a_new").is_err());
    assert!(of(&mut registry, "a_7").is_ok(), "it has a series");
    registry.evict_unused(true);
    assert!(of(&mut registry, "a_new").is_err(), "all are used");
    drop(used);
    registry.evict_unused(false);
    assert_eq!(registry.series.len(), MAX_VALUES, "no room is needed");
    evict_until(&mut registry, true, |registry| registry.series.is_empty());
    assert_eq!(registry.bytes, 0);
    assert!(of(&mut registry, &"a".repeat(MAX_BYTES)).is_err());
    assert!(of(&mut registry, "a_new").is_ok());
}

#[test]
fn a_rule_with_many_values_leaves_room_for_those_of_others() {
    let mut registry = Registry::default();
    let mut room = |rule: &str, rules: usize, value: &str| {
        let fits =
            |number: &usize| registry.of_values("d", &format!("{rule}_{number}{value}"), rule, rules).is_ok();
        (0..2 * MAX_VALUES).filter(fits).count()
    };
    assert_eq!([room("a", 3, ""), room("b", 3, ""), room("c", 3, "")], [MAX_BYTES / 3 / MIN_PATH_BYTES; 3]);
    let mut registry = Registry::default();
    let long = "x".repeat(250);
    let mut room = |rule: &str| {
        let fits =
            |number: &usize| registry.of_values("d", &format!("{rule}_{number}{long}"), rule, 2).is_ok();
        (0..MAX_VALUES).filter(fits).count()
    };
    let (a, b) = (room("a"), room("b"));
    assert!(a == b && a > 100, "{a}, {b}");
    assert!(room("one of too many") <= 2);
}

#[test]
fn counts_of_several_series_are_part_of_their_sums() {
    let mut registry = Registry::default();
    let sums: [Arc<AtomicU64>; KINDS] = Default::default();
    let series = ["a", "b"].map(|path| registry.of_rule("d", path).0);
    series[0].counters_in(&sums).add([1, 0, 0, 2, 0, 0]);
    series[1].counters_in(&sums).add([10, 0, 0, 0, 0, 5]);
    // Of neither sum.
    series[1].counters().add([100, 0, 0, 0, 0, 0]);
    assert_eq!(sums.each_ref().map(|sum| sum.load(Ordering::Relaxed)), [11, 0, 0, 2, 0, 5]);
    assert_eq!(series.each_ref().map(|series| series.counted()[0]), [1, 110]);
}

#[test]
fn a_path_with_values_belongs_to_one_rule() {
    let mut registry = Registry::default();
    let used = registry.of_values("d", "api_key_abc", "api", 1).expect("room").counters();
    let mut of = |domain: &str, path: &str, rule: &str| registry.of_values(domain, path, rule, 1).map(drop);
    assert_eq!(of("d", "api_key_abc", "api_key"), Err(NoSeries::Taken));
    assert_eq!(of("d", "api_key_abc", "api"), Ok(()));
    assert_eq!((of("e", "api_key_abc", "api_key"), of("d", "api_key_ab", "api_key")), (Ok(()), Ok(())));
    let of_rule = registry.of_rule("d", "api_key_x").0.counters();
    assert_eq!(registry.of_values("d", "api_key_x", "api_key", 1).map(drop), Err(NoSeries::Taken));
    drop((used, of_rule));
}
