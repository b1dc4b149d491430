//! Traffic of the fleet by minute, and baselines.

use tollgate::control::{Baselines, Control, MinuteTotals, SeriesCounts};

use super::{now_ms, redis_control};
use crate::support::redis::Redis;

fn counts(series: &[(&str, u64, u64)]) -> Vec<SeriesCounts> {
    let of = |(name, hits, denied): &(&str, u64, u64)| SeriesCounts {
        name: (*name).to_owned(),
        hits: *hits,
        denied: *denied,
    };
    series.iter().map(of).collect()
}

/// Entries of the store for series names that start with `1:d`.
fn found(totals: &MinuteTotals) -> Vec<(&str, u64, u64)> {
    totals.counts.iter().map(|(name, (hits, denied))| (&**name, *hits, *denied)).collect()
}

async fn sums_have_all_instances(one: Control, other: Control) {
    let minute = now_ms() / 60_000;
    assert_eq!(one.minute(minute).await.expect("read").reporters, 0);
    assert!(one.add_minute(minute, counts(&[("1:d:a", 5, 1), ("1:d:b", 2, 0)])).await.expect("added"));
    assert!(other.add_minute(minute, counts(&[("1:d:a", 7, 0), ("1:d:c", 1, 1)])).await.expect("added"));
    let totals = other.minute(minute).await.expect("read");
    assert_eq!(totals.reporters, 2);
    assert_eq!(found(&totals), [("1:d:a", 12, 1), ("1:d:b", 2, 0), ("1:d:c", 1, 1)]);
    for wrong in [minute - 9, minute + 9] {
        assert!(!one.add_minute(wrong, counts(&[("1:d:a", 5, 1)])).await.expect("answered"), "skewed");
        assert_eq!(
            one.minute(wrong).await.expect("read"),
            MinuteTotals { missing: totals.missing, ..Default::default() }
        );
    }
    let long = "1:d:".to_owned() + &"x".repeat(600);
    assert!(one.add_minute(minute - 1, counts(&[(&long, 5, 1)])).await.expect("added"));
    assert_eq!(found(&one.minute(minute - 1).await.expect("read")), []);
    let many: Vec<_> = (0..700).map(|rule| (format!("1:d:{rule:03}"), rule + 1, 0)).collect();
    let borrowed: Vec<_> = many.iter().map(|(name, hits, denied)| (&**name, *hits, *denied)).collect();
    assert!(one.add_minute(minute - 2, counts(&borrowed)).await.expect("added"));
    assert_eq!(found(&one.minute(minute - 2).await.expect("read")), borrowed);
}

async fn existing_series_take_no_room(one: Control, other: Control) {
    let minute = now_ms() / 60_000;
    let add = async |control: &Control, series: std::ops::Range<u32>| {
        let names: Vec<_> = series.map(|rule| format!("1:d:{rule:04}")).collect();
        let counts = counts(&names.iter().map(|name| (&**name, 1, 0)).collect::<Vec<_>>());
        assert!(control.add_minute(minute, counts).await.expect("added"));
    };
    // Of at most 8,000 fields.
    add(&one, 0..7_950).await;
    add(&other, 7_900..7_990).await;
    assert_eq!(found(&one.minute(minute).await.expect("read")).len(), 7_990);
}

async fn baselines_and_the_view_are_kept(one: Control, other: Control) {
    assert_eq!(one.baselines().await.expect("read"), Baselines::new());
    assert_eq!(one.anomalies().await.expect("read"), None);
    let mut all: Baselines = (0..120_u8).map(|rule| (format!("1:d:{rule}"), vec![rule; 3_080])).collect();
    one.store_baselines(&all, &[]).await.expect("stored");
    assert_eq!(other.baselines().await.expect("read"), all);
    all.remove("1:d:7");
    other.store_baselines(&all, &["1:d:7".to_owned()]).await.expect("stored");
    assert_eq!(one.baselines().await.expect("read"), all);
    one.store_anomalies("{}".to_owned()).await.expect("stored");
    assert_eq!(other.anomalies().await.expect("read").as_deref(), Some("{}"));
}

mod redis {
    use super::*;

    #[tokio::test]
    async fn sums_have_all_instances() {
        let redis = Redis::start();
        super::sums_have_all_instances(redis_control(&redis.url(), ""), redis_control(&redis.url(), ""))
            .await;
        every_key_expires(&redis);
    }

    #[tokio::test]
    async fn existing_series_take_no_room() {
        let redis = Redis::start();
        super::existing_series_take_no_room(redis_control(&redis.url(), ""), redis_control(&redis.url(), ""))
            .await;
    }

    #[tokio::test]
    async fn baselines_and_the_view_are_kept() {
        let redis = Redis::start();
        super::baselines_and_the_view_are_kept(
            redis_control(&redis.url(), ""),
            redis_control(&redis.url(), ""),
        )
        .await;
        every_key_expires(&redis);
    }

    fn every_key_expires(redis: &Redis) {
        let mut connection = redis.connect();
        let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
        assert!(!keys.is_empty());
        for key in keys {
            let left: i64 = ::redis::cmd("PTTL").arg(&key).query(&mut connection).expect("a time");
            assert!(left > 0, "{key} stays");
        }
    }
}

mod cluster {
    use super::*;

    fn control(prefix: &str) -> Control {
        redis_control(&crate::support::cluster::shared().url(), prefix)
    }

    #[tokio::test]
    async fn sums_have_all_instances() {
        super::sums_have_all_instances(control("traffic:sums:"), control("traffic:sums:")).await;
    }

    #[tokio::test]
    async fn baselines_and_the_view_are_kept() {
        super::baselines_and_the_view_are_kept(control("traffic:base:"), control("traffic:base:")).await;
    }
}
