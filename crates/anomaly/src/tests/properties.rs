//! Properties that hold for any traffic.

use proptest::prelude::*;

use super::traffic::{DAY, Rule};
use crate::{AnomalyEnd, AnomalyKind, Counts, Sensitivity, Series, SeriesKey, Traffic, Watch};

const WEEK: u64 = 7 * DAY;

/// A series that has learned constant traffic.
fn learned(days: u64, hits: u64, denied: u64) -> Series {
    let mut series = Series::default();
    for minute in 0..days * DAY {
        assert_eq!(
            series.observe(minute, Some(Counts { hits, denied }), Sensitivity::Medium),
            [],
            "{minute}"
        );
    }
    series
}

/// The minute after the start in which something begins or ends, with its kind.
fn first(
    series: &mut Series,
    begin: u64,
    minutes: u64,
    counts: Option<Counts>,
) -> Option<(u64, AnomalyKind, Option<AnomalyEnd>)> {
    (begin..begin + minutes).find_map(|minute| {
        let found = series.observe(minute, counts, Sensitivity::Medium);
        found.first().map(|transition| (minute - begin + 1, transition.anomaly.kind, transition.end))
    })
}

#[test]
fn gaps_are_neither_drops_nor_ends() {
    let mut series = learned(9, 1_000, 0);
    let mut lost = series.clone();
    assert_eq!(first(&mut lost, 9 * DAY, 3 * DAY, None), None, "gaps of days");
    let none = Some(Counts::default());
    let (after, kind, _) = first(&mut series, 9 * DAY, 10, none).expect("a drop");
    assert_eq!((after, kind), (4, AnomalyKind::RateLow));
    assert_eq!(first(&mut series, 9 * DAY + 4, 60, None), None, "it lasts, as far as it is known");
    assert_eq!(series.active().count(), 1);
    let usual = Some(Counts { hits: 1_000, denied: 0 });
    let (after, _, end) = first(&mut series, 9 * DAY + 64, 120, usual).expect("an end");
    assert_eq!((after, end), (13, Some(AnomalyEnd::Ended)), "ten minutes inside");
    assert_eq!(series.active().count(), 0);
}

#[test]
fn a_changed_limit_makes_denied_shares_learn_anew_and_leaves_rates_alone() {
    let mut series = learned(9, 1_000, 10);
    series.set_limit(1);
    let mut changed = series.clone();
    let denied = Some(Counts { hits: 1_000, denied: 700 });
    assert_eq!(first(&mut series, 9 * DAY, 60, denied).expect("found").1, AnomalyKind::DeniedShareHigh);
    changed.set_limit(1);
    changed.set_limit(2);
    assert_eq!(first(&mut changed, 9 * DAY, 5 * DAY, denied), None, "not comparable");
    assert_eq!(
        first(&mut changed, 14 * DAY, 60, Some(Counts::default())).expect("found").1,
        AnomalyKind::RateLow
    );
}

#[test]
fn a_lasting_level_is_accepted_after_a_day() {
    let mut series = learned(9, 1_000, 0);
    let more = Some(Counts { hits: 4_000, denied: 0 });
    assert_eq!(
        first(&mut series, 9 * DAY, 60, more).map(|(_, kind, end)| (kind, end)),
        Some((AnomalyKind::RateHigh, None))
    );
    let (after, kind, end) = first(&mut series, 9 * DAY + 60, 2 * DAY, more).expect("accepted");
    assert_eq!((kind, end), (AnomalyKind::RateHigh, Some(AnomalyEnd::Accepted)));
    assert!(after <= DAY, "{after}");
    let accepted = 9 * DAY + 60 + after;
    assert_eq!(first(&mut series, accepted, WEEK, more), None, "normal by now");
    let less = Some(Counts { hits: 1_000, denied: 0 });
    assert_eq!(first(&mut series, accepted + WEEK, 60, less).expect("a drop").1, AnomalyKind::RateLow);
}

#[test]
fn a_stored_series_continues_as_if_it_had_not_been_stored() {
    let mut rule = Rule::by_chance(4);
    let mut series = Series::default();
    for minute in 0..15 * DAY {
        series.observe(minute, Some(rule.counts(minute, 1.0, 0.0)), Sensitivity::Medium);
    }
    let record = series.to_record();
    assert_eq!(record.len(), crate::record::RECORD_BYTES);
    let mut stored = Series::from_record(&record).expect("valid");
    assert_eq!(stored.to_record(), record);
    let none = Some(Counts::default());
    for minute in 15 * DAY..16 * DAY {
        let counts = Some(rule.counts(minute, 1.0, 0.0));
        assert_eq!(
            series.observe(minute, counts, Sensitivity::Medium),
            stored.observe(minute, counts, Sensitivity::Medium)
        );
    }
    assert_eq!(first(&mut series, 16 * DAY, 60, none), first(&mut stored, 16 * DAY, 60, none));
    for wrong in [&record[1..], &record[..record.len() - 1], &[]] {
        assert!(Series::from_record(wrong).is_none());
    }
    assert!(Series::from_record(&[[9].as_slice(), &record[1..]].concat()).is_none(), "another format");
}

fn key(rule: &str) -> SeriesKey {
    SeriesKey { domain: "d".into(), rule: rule.into() }
}

fn traffic(rules: impl IntoIterator<Item = (String, u64)>) -> Traffic {
    Traffic(rules.into_iter().map(|(rule, hits)| (key(&rule), Counts { hits, denied: 0 })).collect())
}

#[test]
fn the_number_of_series_is_bounded_and_much_heavier_rules_replace_light_ones() {
    let mut watch = Watch::default();
    let light = traffic((0..crate::MAX_SERIES + 500).map(|rule| (format!("{rule:05}"), 2)));
    for minute in 0..120 {
        watch.observe(minute, Some(&light), Sensitivity::Medium);
    }
    assert_eq!(watch.series().len(), crate::MAX_SERIES);
    assert!(watch.take_dropped().is_empty(), "none is much heavier");
    let mut heavy = light.clone();
    heavy.0.insert(key("heavy"), Counts { hits: 500, denied: 0 });
    for minute in 120..241 {
        watch.observe(minute, Some(&heavy), Sensitivity::Medium);
    }
    assert_eq!(watch.take_dropped().len(), 1);
    assert_eq!(watch.series().len(), crate::MAX_SERIES);
    assert!(watch.series().any(|(known, _)| *known == key("heavy")));
}

#[test]
fn a_minute_counts_once() {
    let mut watch = Watch::default();
    let one = traffic([("a".to_owned(), 7)]);
    watch.observe(100, Some(&one), Sensitivity::Medium);
    for earlier in [100, 99, 0] {
        assert_eq!(watch.observe(earlier, Some(&one), Sensitivity::Medium), []);
    }
    assert_eq!(watch.last(), Some(100));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_counts_have_finite_bands_and_balanced_events_and_none_in_the_first_week(
        seed: u64, scale in 0_u32..50, gaps in 0_u32..100, days in 1_u64..16,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut series, mut open) = (Series::default(), 0_i32);
        let mut minute = random.u64(..100_000);
        let begin = minute;
        while minute < begin + days * DAY {
            minute += if random.u32(..500) == 0 { random.u64(1..5_000) } else { 1 };
            let most = 1_u64 << random.u32(..=scale);
            let hits = random.u64(..=most);
            let counts = Counts { hits, denied: random.u64(..=hits) };
            let counts = (random.u32(..100) >= gaps).then_some(counts);
            for transition in series.observe(minute, counts, Sensitivity::High) {
                prop_assert!(minute > begin + WEEK);
                open += if transition.end.is_none() { 1 } else { -1 };
                let anomaly = transition.anomaly;
                for value in [anomaly.observed, anomaly.expected, anomaly.low, anomaly.high] {
                    prop_assert!(value.is_finite() && value >= 0.0, "{anomaly:?}");
                }
                prop_assert!(anomaly.low <= anomaly.expected && anomaly.expected <= anomaly.high, "{anomaly:?}");
            }
        }
        prop_assert_eq!(open, i32::try_from(series.active().count()).expect("few"));
    }

    #[test]
    fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..4_000)) {
        if let Some(series) = Series::from_record(&bytes) {
            prop_assert_eq!(series.to_record().len(), bytes.len());
        }
    }
}
