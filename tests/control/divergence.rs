//! Stores that lost what an instance knows, and went on without it.

use super::*;

const HEAD: &str = "{tollgate-rules}:head";
const ENTRIES: &str = "{tollgate-rules}:entries";

/// One instance that follows a Redis.
struct Follower {
    redis: Redis,
    control: Control,
    instance: Tollgate,
}

impl Follower {
    fn start() -> Self {
        let redis = Redis::start();
        let url = redis.url();
        let arguments = ["--store", &url, "--store-timeout", "5s", "--rules", "redis", "--log-level", "warn"];
        let instance = Tollgate::serving(&limit(1), &arguments);
        Self { control: redis_control(&redis.url(), ""), redis, instance }
    }

    /// Waits until the instance enforces what the store has, and says so.
    async fn follows(&self) {
        until("it enforces what the store has", async || {
            let current = self.control.current().await.expect("a reply");
            let generation = self.control.runtime().await.expect("a reply").generation;
            let reported = self.control.instances().await.expect("a reply");
            let is_same = |reported: &tollgate::control::Instance| {
                reported.version == current && reported.generation == generation && reported.problem.is_none()
            };
            reported.len() == 1 && reported.iter().all(is_same)
        })
        .await;
    }

    async fn apply(&self, version: u64, text: &str) {
        let made = self.control.apply(draft(Some(version - 1), text)).await.expect("made");
        assert_eq!(made.number, version);
    }

    /// Has a replica take over that has not more than this.
    fn remember(&self) {
        for key in [HEAD, ENTRIES] {
            let kept = format!("{key}:kept");
            cmd("DEL").arg(&kept).exec(&mut self.redis.connect()).expect("removed");
            cmd("COPY").arg(key).arg(kept).exec(&mut self.redis.connect()).expect("copied");
        }
    }

    fn fail_over(&self, lost_versions: &[u64]) {
        for key in [HEAD, ENTRIES] {
            let mut connection = self.redis.connect();
            cmd("DEL").arg(key).exec(&mut connection).expect("removed");
            cmd("COPY").arg(format!("{key}:kept")).arg(key).exec(&mut connection).expect("copied");
        }
        for version in lost_versions {
            let key = format!("{{tollgate-rules}}:version:{version}");
            cmd("DEL").arg(key).exec(&mut self.redis.connect()).expect("removed");
        }
    }

    async fn banned(&self) -> Vec<String> {
        let entries = self.control.runtime().await.expect("a reply").entries;
        entries.into_iter().map(|entry| entry.id).collect()
    }

    /// The limits that decide these values; none is a denial by a list.
    async fn limits(&self, values: &[&str]) -> Vec<Option<u32>> {
        let mut client = self.instance.client().await;
        let mut limits = Vec::new();
        for value in values {
            let request = request("web", &[&[("k", value)]]);
            let answer = client.call(request).await.expect("answered");
            limits.push(answer.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit));
        }
        limits
    }
}

#[tokio::test]
async fn different_lists_with_the_same_number_of_changes_are_enforced() {
    let follower = Follower::start();
    follower.control.put_entry(ban("before")).await.expect("put");
    follower.follows().await;
    follower.remember();
    follower.control.put_entry(ban("lost")).await.expect("put");
    follower.follows().await;
    assert_eq!(follower.limits(&["before", "lost", "kept"]).await, [None, None, Some(1)]);

    follower.instance.signal("STOP");
    follower.fail_over(&[]);
    follower.control.put_entry(ban("kept")).await.expect("put");
    assert_eq!(follower.control.runtime().await.expect("a reply").generation, 2);
    follower.instance.signal("CONT");
    until("the store's lists are enforced", async || {
        follower.limits(&["before", "lost", "kept"]).await == [None, Some(1), None]
    })
    .await;
    assert_eq!(follower.banned().await, ["before", "kept"]);
}

#[tokio::test]
async fn a_disconnected_instance_adopts_changes_made_to_an_emptied_store() {
    let follower = Follower::start();
    for version in 2..=5 {
        follower.apply(version, &limit(u32::try_from(version).expect("small"))).await;
    }
    for value in ["a", "b", "c"] {
        follower.control.put_entry(ban(value)).await.expect("put");
    }
    follower.follows().await;

    follower.instance.signal("STOP");
    cmd("FLUSHALL").exec(&mut follower.redis.connect()).expect("flushed");
    follower.control.apply(draft(None, &limit(70))).await.expect("made");
    follower.control.apply(draft(Some(1), &limit(71))).await.expect("made");
    follower.control.put_entry(ban("new")).await.expect("put");
    follower.instance.signal("CONT");
    follower.follows().await;
    assert_eq!(follower.limits(&["a", "new"]).await, [Some(71), None]);
    assert_eq!(
        (follower.control.current().await, follower.banned().await),
        (Ok(Some(2)), vec!["new".into()])
    );
    let audit = follower.control.audit(None, 10).await.expect("a reply");
    assert!(audit.len() == 3 && audit.iter().all(|entry| entry.author == "ada"), "{audit:?}");
}

#[tokio::test]
async fn state_lost_in_a_failover_is_restored_unless_changed_since() {
    let follower = Follower::start();
    follower.apply(2, &limit(2)).await;
    follower.control.put_entry(ban("before")).await.expect("put");
    follower.follows().await;
    follower.remember();
    follower.apply(3, &limit(3)).await;
    follower.apply(4, &limit(4)).await;
    for value in ["a", "b"] {
        follower.control.put_entry(ban(value)).await.expect("put");
    }
    follower.follows().await;

    follower.instance.signal("STOP");
    follower.fail_over(&[3, 4]);
    assert_eq!((follower.control.current().await, follower.banned().await.len()), (Ok(Some(2)), 1));
    follower.instance.signal("CONT");
    until("both come back", async || {
        follower.control.current().await == Ok(Some(4)) && follower.banned().await.len() == 3
    })
    .await;
    follower.follows().await;

    follower.instance.signal("STOP");
    follower.fail_over(&[3, 4]);
    follower.apply(3, &limit(33)).await;
    follower.control.put_entry(ban("other")).await.expect("put");
    follower.instance.signal("CONT");
    follower.follows().await;
    assert_eq!(follower.limits(&["a", "other"]).await, [Some(33), None]);
    assert_eq!(follower.control.current().await, Ok(Some(3)));
    assert_eq!(follower.banned().await, ["before", "other"]);
    // It goes on from there.
    follower.apply(4, &limit(44)).await;
    follower.follows().await;
    assert_eq!(follower.limits(&["a"]).await, [Some(44)]);
}
