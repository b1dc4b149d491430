//! Changes whose response is lost are made once.

use std::time::Duration;

use tokio::{join, time::sleep};

use super::entry;
use crate::{
    control::{draft, redis_control},
    support::{
        proxy::{Direction, Proxy, Way},
        redis::Redis,
    },
};

#[tokio::test]
async fn an_apply_with_a_lost_response_makes_one_version() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let control = redis_control(&format!("redis://127.0.0.1:{}", proxy.port()), "");
    let mut current = control.apply(draft(None, "# 0")).await.expect("made").number;
    for round in 1..20_usize {
        // The server obeys, and the answer is cut off, at once or halfway.
        proxy.set(Direction::ToClient, Way::CutAfter(round % 4));
        let (applied, ()) = join!(control.apply(draft(Some(current), &format!("# {round}"))), async {
            sleep(Duration::from_millis(40)).await;
            proxy.set(Direction::ToClient, Way::Open);
        });
        current = applied.expect("made").number;
        assert_eq!(current, 1 + u64::try_from(round).expect("small"));
        control.put_entry(entry("same", None)).await.expect("put");
    }
    let direct = redis_control(&redis.url(), "");
    assert_eq!(direct.versions(None, 100).await.expect("a reply").len(), 20);
    assert_eq!(direct.audit(None, 100).await.expect("a reply").len(), 20 + 19);
}

#[tokio::test]
async fn a_list_change_with_a_lost_response_is_audited_once() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let control = redis_control(&format!("redis://127.0.0.1:{}", proxy.port()), "");
    control.put_entry(entry("0", None)).await.expect("put");
    for round in 1..10_usize {
        proxy.set(Direction::ToClient, Way::CutAfter(round % 4));
        let (put, ()) = join!(control.put_entry(entry(&round.to_string(), None)), async {
            sleep(Duration::from_millis(40)).await;
            proxy.set(Direction::ToClient, Way::Open);
        });
        put.expect("put");
    }
    let direct = redis_control(&redis.url(), "");
    assert_eq!(direct.runtime().await.expect("a reply").generation, 10);
    assert_eq!(direct.audit(None, 100).await.expect("a reply").len(), 10);
}
