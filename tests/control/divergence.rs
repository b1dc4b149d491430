//! Stores that lost what an instance knows, and went on without it.

use futures_util::future::join_all;

use super::*;

/// The keys of what a replica may lack.
fn replicated() -> impl Iterator<Item = String> {
    BOOK_KEYS.into_iter().chain(["head"]).map(rules_key)
}

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
            let generation = head_in(&self.control).await.revision;
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
        for key in replicated() {
            let kept = format!("{key}:kept");
            cmd("DEL").arg(&kept).exec(&mut self.redis.connect()).expect("removed");
            // An absent key has no copy.
            cmd("COPY").arg(&key).arg(kept).exec(&mut self.redis.connect()).expect("copied");
        }
    }

    fn fail_over(&self, lost_versions: &[u64]) {
        for key in replicated() {
            let mut connection = self.redis.connect();
            cmd("DEL").arg(&key).exec(&mut connection).expect("removed");
            cmd("COPY").arg(format!("{key}:kept")).arg(&key).exec(&mut connection).expect("copied");
        }
        for version in lost_versions {
            cmd("DEL")
                .arg(rules_key(&format!("version:{version}")))
                .exec(&mut self.redis.connect())
                .expect("removed");
        }
    }

    async fn banned(&self) -> Vec<String> {
        entries_in(&self.control).await.into_keys().collect()
    }

    /// Denies values, for a reason.
    async fn ban(&self, values: &[&str], reason: &str) {
        let puts = values
            .iter()
            .map(|value| put_entry(&self.control, ListEntry { reason: reason.into(), ..ban(value) }));
        join_all(puts).await.into_iter().for_each(|put| drop(put.expect("put")));
    }

    /// The reason for which a value is denied.
    async fn reason(&self, value: &str) -> String {
        entries_in(&self.control).await[value].reason.clone()
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
async fn changes_that_a_store_lost_are_merged_with_those_that_it_made_since() {
    let follower = Follower::start();
    follower.ban(&["before", "both"], "").await;
    follower.follows().await;
    follower.remember();
    follower.ban(&["lost", "both"], "lost").await;
    follower.follows().await;
    let values = ["before", "both", "lost", "kept"];
    assert_eq!(follower.limits(&values).await, [None, None, None, Some(1)]);

    // As many changes as were lost.
    follower.instance.signal("STOP");
    follower.fail_over(&[]);
    follower.ban(&["kept", "both"], "later").await;
    assert_eq!(follower.banned().await, ["before", "both", "kept"]);
    follower.instance.signal("CONT");
    until("both are enforced", async || follower.limits(&values).await == [None; 4]).await;
    follower.follows().await;
    assert_eq!(follower.banned().await, ["before", "both", "kept", "lost"]);
    assert_eq!(follower.reason("both").await, "later", "of one record, the last change stays");
}

#[tokio::test]
async fn a_removal_that_a_store_lost_is_restored() {
    let follower = Follower::start();
    follower.ban(&["a", "b", "c"], "").await;
    follower.follows().await;
    follower.remember();
    for value in ["a", "b"] {
        let path = format!("/records/{}", ban(value).record_key());
        assert_eq!(api(&follower.instance, "DELETE", &path, None).0, 204);
    }
    follower.follows().await;
    follower.instance.signal("STOP");
    follower.fail_over(&[]);
    follower.ban(&["b"], "again").await;
    assert_eq!(follower.banned().await, ["a", "b", "c"]);
    follower.instance.signal("CONT");
    until("the removal is restored", async || follower.banned().await == ["b", "c"]).await;
    follower.follows().await;
    assert_eq!(follower.limits(&["a", "b", "c"]).await, [Some(1), None, None]);
    assert_eq!(follower.reason("b").await, "again", "what was put since is not removed");
}

#[tokio::test]
async fn a_disconnected_instance_merges_its_records_with_those_of_an_emptied_store_and_adopts_its_rules() {
    let follower = Follower::start();
    for version in 2..=5 {
        follower.apply(version, &limit(u32::try_from(version).expect("small"))).await;
    }
    follower.ban(&["a", "b", "c"], "").await;
    follower.follows().await;

    follower.instance.signal("STOP");
    cmd("FLUSHALL").exec(&mut follower.redis.connect()).expect("flushed");
    follower.control.apply(draft(None, &limit(70))).await.expect("made");
    follower.control.apply(draft(Some(1), &limit(71))).await.expect("made");
    follower.ban(&["new", "b"], "later").await;
    follower.instance.signal("CONT");
    until("both are enforced", async || {
        follower.limits(&["a", "b", "c", "new", "other"]).await == [None, None, None, None, Some(71)]
    })
    .await;
    follower.follows().await;
    assert_eq!(follower.banned().await, ["a", "b", "c", "new"]);
    assert_eq!(follower.control.current().await, Ok(Some(2)));
    assert_eq!(follower.reason("b").await, "later", "of one record, the last change stays");
    let audit = follower.control.audit(None, 10).await.expect("a reply");
    let (restored, own): (Vec<_>, Vec<_>) = audit.iter().partition(|entry| entry.author == "tollgate");
    assert!(restored.len() == 1 && restored[0].subject.contains("changes of records"), "{restored:?}");
    assert!(own.len() == 4 && own.iter().all(|entry| entry.author == "ada"), "{own:?}");
}

#[tokio::test]
async fn state_lost_in_a_failover_is_restored_and_versions_unless_changed_since() {
    let follower = Follower::start();
    follower.apply(2, &limit(2)).await;
    follower.ban(&["before"], "").await;
    follower.follows().await;
    follower.remember();
    follower.apply(3, &limit(3)).await;
    follower.apply(4, &limit(4)).await;
    follower.ban(&["a", "b"], "").await;
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
    follower.ban(&["other"], "").await;
    follower.instance.signal("CONT");
    until("records come back", async || follower.banned().await.len() == 4).await;
    follower.follows().await;
    assert_eq!(follower.limits(&["a", "other", "none"]).await, [None, None, Some(33)]);
    assert_eq!(follower.control.current().await, Ok(Some(3)));
    assert_eq!(follower.banned().await, ["a", "b", "before", "other"]);
    // It goes on from there.
    follower.apply(4, &limit(44)).await;
    follower.follows().await;
    assert_eq!(follower.limits(&["none"]).await, [Some(44)]);
}
