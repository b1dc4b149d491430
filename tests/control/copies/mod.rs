//! Copies of the rules, lists and switches that another region writes, from one Redis to another.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::select;
use tokio_util::task::AbortOnDropHandle;
use tollgate::control::{
    Adopted, Control, ControlError, OverrideEntry, OverridesHead, OverridesPage, ReadRules, Reading,
    RulesCopier, RulesCopy, RulesIdentity, RulesStatus, Switch, SwitchMode, VersionCopy,
};

use super::{ban, draft, files, found, limit, redis_control, until};
use crate::support::redis::Redis;

/// The stores of a region that writes and of one that copies.
struct Pair {
    _redis: [Redis; 2],
    writing: Control,
    copying: Control,
}

impl Pair {
    fn start() -> Self {
        let redis = [Redis::start(), Redis::start()];
        let [writing, copying] = [0, 1].map(|region: usize| redis_control(&redis[region].url(), ""));
        copying.set_writing_region(Some("us-east"));
        Self { _redis: redis, writing, copying }
    }

    /// Compares once, and copies what differs.
    async fn copy(&self) -> Adopted {
        let claim = self.copying.claim_copy(Duration::ZERO).await.expect("a reply");
        let copy = self.writing.rules_after(&claim.has).await.expect("a copy");
        self.copying.adopt_copy("us-east", &claim, copy).await.expect("adopted")
    }

    async fn apply(&self, based_on: Option<u64>, text: &str) {
        self.writing.apply(draft(based_on, text)).await.expect("made");
    }

    async fn assert_same(&self) {
        let current = self.writing.current().await.expect("a reply");
        assert_eq!(self.copying.current().await, Ok(current));
        if let Some(number) = current {
            assert_eq!(self.copying.version(number).await, self.writing.version(number).await);
        }
        let [here, there] = [self.writing.runtime().await, self.copying.runtime().await];
        assert_eq!(here, there);
    }
}

const NOTHING: Adopted = Adopted { version: false, lists: false, overrides: false };
const BOTH: Adopted = Adopted { version: true, lists: true, ..NOTHING };

fn switch() -> Switch {
    Switch {
        domain: "web".into(),
        rule: "k".into(),
        mode: SwitchMode::Shadow,
        enforce_percent: None,
        ramp: None,
        reason: String::new(),
        author: "ada".into(),
        created_at_ms: 1,
        expires_at_ms: None,
    }
}

#[tokio::test]
async fn a_copy_is_the_state_of_the_writing_region_and_a_second_one_carries_nothing() {
    let pair = Pair::start();
    // Neither has anything, but the copying region may have had lists of its own.
    assert_eq!(pair.copy().await, Adopted { lists: true, ..NOTHING });
    assert_eq!(pair.copy().await, NOTHING);
    pair.apply(None, &limit(1)).await;
    pair.writing.put_entry(ban("a")).await.expect("put");
    pair.writing.put_switch(switch()).await.expect("put");
    assert_eq!(pair.copy().await, BOTH);
    pair.assert_same().await;
    assert_eq!(pair.copy().await, NOTHING);
    pair.writing.remove_entry("a", "ada").await.expect("removed");
    assert_eq!(pair.copy().await, Adopted { lists: true, ..NOTHING });
    pair.apply(Some(1), &limit(2)).await;
    pair.apply(Some(2), &limit(3)).await;
    assert_eq!(pair.copy().await, Adopted { version: true, ..NOTHING });
    pair.assert_same().await;
    let audit = pair.copying.audit(None, 10).await.expect("a log");
    assert_eq!(audit[0].subject, "version 3");
    assert_eq!(audit[0].comment, "copied from region us-east");
}

#[tokio::test]
async fn a_slow_copy_does_not_replace_a_later_one() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    let claim = pair.copying.claim_copy(Duration::ZERO).await.expect("a reply");
    let slow = pair.writing.rules_after(&claim.has).await.expect("a copy");
    pair.apply(Some(1), &limit(2)).await;
    pair.writing.put_entry(ban("a")).await.expect("put");
    assert_eq!(pair.copy().await, BOTH);
    assert_eq!(pair.copying.adopt_copy("us-east", &claim, slow).await, Ok(NOTHING));
    pair.assert_same().await;
}

#[tokio::test]
async fn only_the_writing_region_accepts_changes_and_another_can_take_over() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    pair.writing.put_entry(ban("a")).await.expect("put");
    pair.copy().await;
    let refused = ControlError::OtherRegion { region: "us-east".into() };
    assert_eq!(pair.copying.apply(draft(Some(1), &limit(2))).await, Err(refused.clone()));
    assert_eq!(pair.copying.put_entry(ban("b")).await, Err(refused.clone()));
    assert_eq!(pair.copying.remove_entry("a", "ada").await, Err(refused.clone()));
    assert_eq!(pair.copying.put_switch(switch()).await, Err(refused));
    pair.assert_same().await;
    // The roles change, and both regions made a version 2.
    pair.apply(Some(1), "# not copied").await;
    pair.copying.set_writing_region(None);
    pair.copying.apply(draft(Some(1), &limit(2))).await.expect("made");
    pair.copying.remove_entry("a", "ada").await.expect("removed");
    let back = Pair { _redis: pair._redis, writing: pair.copying, copying: pair.writing };
    back.copying.set_writing_region(Some("eu-west"));
    assert_eq!(back.copy().await, BOTH);
    back.assert_same().await;
    assert_eq!(back.copying.version(2).await.expect("a reply").expect("there").1, files(&limit(2)));
}

#[tokio::test]
async fn of_concurrent_instances_one_compares_in_an_interval() {
    let pair = Pair::start();
    let mut claims = Vec::new();
    for _ in 0..5 {
        claims.push(pair.copying.claim_copy(Duration::from_secs(3_600)).await.expect("a reply"));
    }
    let claimed: Vec<bool> = claims.iter().map(|claim| claim.is_claimed).collect();
    assert_eq!(claimed, [true, false, false, false, false]);
    assert_eq!(claims[4].compared_ms, None);
    pair.copying.compared(&claims[0]).await.expect("recorded");
    let claim = pair.copying.claim_copy(Duration::from_secs(3_600)).await.expect("a reply");
    assert_eq!(claim.compared_ms, Some(claims[0].now_ms));
}

#[tokio::test]
async fn malformed_copies_change_nothing() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    pair.copy().await;
    pair.apply(Some(1), &limit(2)).await;
    let claim = pair.copying.claim_copy(Duration::ZERO).await.expect("a reply");
    let good = pair.writing.rules_after(&claim.has).await.expect("a copy").version.expect("differs");
    let bad = [
        VersionCopy { token: String::new(), ..good.clone() },
        VersionCopy { token: "x".repeat(65), ..good.clone() },
        VersionCopy { number: 3, ..good.clone() },
        VersionCopy { meta: b"{}".to_vec(), ..good.clone() },
        VersionCopy { files: b"[1]".to_vec(), ..good.clone() },
        VersionCopy { trail: "x".repeat(5_000), ..good },
    ];
    for version in bad {
        let copy = RulesCopy { version: Some(version), ..RulesCopy::default() };
        let refused = pair.copying.adopt_copy("us-east", &claim, copy).await;
        assert!(matches!(refused, Err(ControlError::Malformed(_))), "{refused:?}");
    }
    assert_eq!(pair.copying.current().await, Ok(Some(1)));
}

#[tokio::test]
async fn a_store_in_a_process_has_no_copies() {
    let memory = Control::memory(tollgate::control::RulesSource::Memory, None).expect("usable");
    let refused = memory.rules_after(&RulesIdentity::default()).await;
    assert!(matches!(refused, Err(ControlError::Unavailable(_))), "{refused:?}");
}

/// A writing region that may be cut off.
#[derive(Clone, Debug)]
struct Peer {
    writing: Control,
    is_cut: Arc<AtomicBool>,
    /// Whether only the first page of overrides arrives.
    is_cut_midway: bool,
    /// Server that loses what it has gathered before the second page arrives, once.
    loses: Arc<Mutex<Option<String>>>,
}

impl Peer {
    fn new(writing: &Control) -> Self {
        let writing = writing.clone();
        Self { writing, is_cut: Arc::default(), is_cut_midway: false, loses: Arc::default() }
    }
}

/// Deletes what a server has gathered of a whole copy, after its first page.
fn lose(url: &str) {
    let client = redis::Client::open(url).expect("a valid URL");
    let mut connection = client.get_connection().expect("a connection");
    let mut source = redis::cmd("HGET");
    let source = source.arg("{tollgate-rules}:head").arg("override_source");
    let source: String = source.query(&mut connection).expect("a source");
    assert!(source.ends_with(":2000"), "each step names the one before: {source}");
    let names = ["copied-overrides", "copied-override-revisions", "copied-override-ends"];
    let keys = names.map(|name| format!("{{tollgate-rules}}:{name}"));
    redis::cmd("DEL").arg(&keys).exec(&mut connection).expect("deleted");
}

impl ReadRules for Peer {
    fn writing_region(&self) -> Option<String> {
        Some("us-east".to_owned())
    }

    fn read<'r>(&'r self, region: &'r str, known: &'r RulesIdentity) -> Reading<'r> {
        assert_eq!(region, "us-east");
        let is_cut = self.is_cut.load(Ordering::Relaxed);
        Box::pin(async move {
            if is_cut {
                return Err("unreachable".to_owned());
            }
            self.writing.rules_after(known).await.map_err(|error| error.to_string())
        })
    }

    fn read_overrides<'r>(
        &'r self,
        _: &'r str,
        known: &'r OverridesHead,
        is_continued: bool,
    ) -> Reading<'r, OverridesPage> {
        Box::pin(async move {
            if is_continued && self.is_cut_midway {
                return Err("cut off midway".to_owned());
            }
            if is_continued && let Some(url) = self.loses.lock().take() {
                lose(&url);
            }
            self.writing.overrides_after(known, is_continued).await.map_err(|error| error.to_string())
        })
    }
}

/// Starts to copy what `writing` has to `copying`.
fn start_copier(writing: &Control, copying: &Control) -> AbortOnDropHandle<std::convert::Infallible> {
    let peer = Peer::new(writing);
    let copier = RulesCopier::new(copying.clone(), RulesStatus::default(), Arc::new(peer));
    AbortOnDropHandle::new(tokio::spawn(copier.run()))
}

fn rule_override(value: &str, limit: u32) -> OverrideEntry {
    let entry = serde_json::json!({"domain": "web", "rule": "k", "key": [{"key": "k", "value": value}],
        "rate_limit": {"requests_per_unit": limit}, "reason": "r", "author": "ada", "created_at_ms": 1,
        "expires_at_ms": null});
    serde_json::from_value::<OverrideEntry>(entry).expect("valid").identified()
}

/// Overrides in a store; `None` if it does not reply in time.
async fn overrides_in(store: &Control) -> Option<BTreeMap<String, Vec<u8>>> {
    let (mut known, mut all) = (OverridesHead::default(), BTreeMap::new());
    loop {
        let is_continued = known.revision > 0;
        let page = store.overrides_after(&known, is_continued).await.ok()?;
        known =
            OverridesHead { revision: page.changes.last().map_or(0, |change| change.revision), ..page.head };
        let put = page.changes.into_iter().filter(|change| !change.payload.is_empty());
        all.extend(put.map(|change| (change.id, change.payload)));
        if !page.has_more {
            return Some(all);
        }
    }
}

/// Whether two stores reply, and have the same overrides.
async fn are_same(one: &Control, other: &Control) -> bool {
    let [one, other] = [overrides_in(one).await, overrides_in(other).await];
    one.is_some() && one == other
}

/// Overrides in a store.
async fn all_of(store: &Control) -> BTreeMap<String, Vec<u8>> {
    found("the store replies", async || overrides_in(store).await).await
}

/// The state of the overrides in a store.
async fn head_of(store: &Control) -> OverridesHead {
    let head = async || Some(store.overrides_after(&OverridesHead::default(), false).await.ok()?.head);
    found("the store replies", head).await
}

/// Puts overrides, again if the store does not reply in time. No instance enforces them, for which the call would wait.
async fn put(store: &Control, entries: Vec<OverrideEntry>) {
    let putting = async {
        found("the store takes overrides", async || store.put_overrides(entries.clone()).await.ok()).await;
        pending::<()>().await;
    };
    let stored = until("overrides are put", async || {
        let Some(all) = overrides_in(store).await else { return false };
        entries.iter().all(|entry| {
            let stored = all.get(&entry.id).and_then(|payload| serde_json::from_slice(payload).ok());
            stored.as_ref() == Some(entry)
        })
    });
    select! {
        () = stored => {}
        () = putting => {}
    }
}

#[tokio::test]
async fn overrides_are_copied_whole_at_first_and_then_by_their_changes() {
    let pair = Pair::start();
    pair.copying.set_writing_region(None);
    put(&pair.copying, vec![rule_override("own", 1)]).await;
    // More than a page.
    let many = (0..2_100).map(|at| rule_override(&format!("v{at}"), at)).collect();
    put(&pair.writing, many).await;
    let copier = start_copier(&pair.writing, &pair.copying);
    let are_same = async || are_same(&pair.writing, &pair.copying).await;
    until("all are copied, and the own one is dropped", are_same).await;
    assert_eq!(all_of(&pair.copying).await.len(), 2_100);
    let refused = ControlError::OtherRegion { region: "us-east".into() };
    assert_eq!(pair.copying.put_overrides(vec![rule_override("own", 1)]).await, Err(refused));

    let lineage = head_of(&pair.copying).await;
    put(&pair.writing, vec![rule_override("v7", 70), rule_override("new", 1)]).await;
    until("changes are copied", are_same).await;
    let after = head_of(&pair.copying).await;
    assert_eq!(
        (after.lineage, after.epoch),
        (lineage.lineage, lineage.epoch),
        "instances fetch changes only"
    );

    // The roles change: what the former copy had alone is dropped, and later changes of it do not hide others.
    copier.abort();
    assert!(copier.await.is_err_and(|error| error.is_cancelled()), "it ends before the roles change");
    pair.copying.set_writing_region(None);
    put(&pair.copying, vec![rule_override("v8", 80)]).await;
    put(&pair.writing, vec![rule_override("lost", 1)]).await;
    let _copier = start_copier(&pair.copying, &pair.writing);
    until("the former writing region copies", are_same).await;
    let all = all_of(&pair.writing).await;
    assert_eq!(all.len(), 2_101);
    assert!(all.contains_key(&rule_override("v8", 0).id) && !all.contains_key(&rule_override("lost", 0).id));
}

#[tokio::test]
async fn overrides_that_are_removed_or_lost_are_removed_from_the_copy() {
    let pair = Pair::start();
    put(&pair.writing, vec![rule_override("a", 1), rule_override("b", 1)]).await;
    let _copier = start_copier(&pair.writing, &pair.copying);
    let has = async |values: &[&str]| {
        let ids: BTreeSet<_> = values.iter().map(|value| rule_override(value, 0).id).collect();
        let wanted = format!("the copy has {values:?}");
        until(&wanted, async || {
            let all = overrides_in(&pair.copying).await;
            all.is_some_and(|all| all.into_keys().collect::<BTreeSet<_>>() == ids)
        })
        .await;
    };
    has(&["a", "b"]).await;
    let known = head_of(&pair.writing).await;
    redis::cmd("FLUSHALL").exec(&mut pair._redis[0].connect()).expect("flushed");
    put(&pair.writing, vec![rule_override("c", 1)]).await;
    let after = head_of(&pair.writing).await;
    assert_ne!(known.lineage, after.lineage);
    has(&["c"]).await;
}

#[tokio::test]
async fn a_copy_that_is_cut_midway_hides_no_override() {
    let pair = Pair::start();
    pair.copying.set_writing_region(None);
    put(&pair.copying, vec![rule_override("own", 1), rule_override("v7", 70)]).await;
    let before = all_of(&pair.copying).await;
    put(&pair.writing, (0..2_100).map(|at| rule_override(&format!("v{at}"), at)).collect()).await;
    let peer = Peer { is_cut_midway: true, ..Peer::new(&pair.writing) };
    let copier = RulesCopier::new(pair.copying.clone(), RulesStatus::default(), Arc::new(peer));
    let _copier = AbortOnDropHandle::new(tokio::spawn(copier.run()));
    let fetched = || -> usize {
        let mut length = redis::cmd("HLEN");
        let length = length.arg("{tollgate-rules}:copied-overrides");
        length.query(&mut pair._redis[1].connect()).expect("a reply")
    };
    until("the first page is fetched", async || fetched() == 2_000).await;
    assert_eq!(all_of(&pair.copying).await, before, "an instance that starts has what there was");
}

#[tokio::test]
async fn a_whole_copy_that_loses_a_page_is_refused_and_soon_made_again() {
    let pair = Pair::start();
    put(&pair.writing, (0..2_100).map(|at| rule_override(&format!("v{at}"), at)).collect()).await;
    let peer = Peer::new(&pair.writing);
    *peer.loses.lock() = Some(pair._redis[1].url());
    let status = RulesStatus::default();
    let copier = RulesCopier::new(pair.copying.clone(), status.clone(), Arc::new(peer.clone()));
    let _copier = AbortOnDropHandle::new(tokio::spawn(copier.run()));
    until("the loss is found", async || {
        let problem = status.now().copy.as_ref().and_then(|copy| copy.problem.clone());
        problem.is_some_and(|problem| problem.contains("has lost a part of the copied overrides"))
    })
    .await;
    assert!(peer.loses.lock().is_none());
    until("all are copied", async || are_same(&pair.writing, &pair.copying).await).await;
    assert_eq!(all_of(&pair.copying).await.len(), 2_100);
}

/// Steps of copies of overrides, as instances of a region make them.
struct Steps(redis::Connection);

impl Steps {
    /// Makes a step from one source to another, up to a revision, with changes by revision, id and payload. The words after
    /// the name of a step are arguments of its own.
    fn adopt(
        &mut self,
        attempt: &str,
        (before, after): (&str, &str),
        (step, revision): (&str, u64),
        changes: &[(u64, &str, &str)],
    ) -> String {
        let script = redis::Script::new(tollgate::control::scripts::OVERRIDES);
        let mut call = script.prepare_invoke();
        for name in [
            "head",
            "override-audit",
            "overrides",
            "override-revisions",
            "override-removals",
            "override-ends",
        ] {
            call.key(format!("{{tollgate-rules}}:{name}"));
        }
        for name in ["copied-overrides", "copied-override-revisions", "copied-override-ends"] {
            call.key(format!("{{tollgate-rules}}:{name}"));
        }
        call.arg("adopt").arg("channel").arg(attempt).arg("token").arg("{}").arg(before).arg(after);
        let (step, own) = step.split_once(' ').unwrap_or((step, ""));
        call.arg(revision).arg(step);
        own.split(' ').for_each(|own| _ = call.arg(own));
        for (revision, id, payload) in changes {
            call.arg(*revision).arg(*id).arg("0").arg(*payload);
        }
        call.invoke(&mut self.0).expect("a reply")
    }

    /// Time after which a key expires, in milliseconds, -1 for never; `None` for an absent one.
    fn time_to_live(&mut self, name: &str) -> Option<i64> {
        let mut expiry = redis::cmd("PTTL");
        let millis = expiry.arg(format!("{{tollgate-rules}}:{name}")).query(&mut self.0).expect("a reply");
        (millis != -2).then_some(millis)
    }

    /// The last revision, and the overrides.
    fn state(&mut self) -> (String, BTreeMap<String, String>) {
        let mut revision = redis::cmd("HGET");
        let revision = revision.arg("{tollgate-rules}:head").arg("override_revision").query(&mut self.0);
        let all = redis::cmd("HGETALL").arg("{tollgate-rules}:overrides").query(&mut self.0);
        (revision.expect("a revision"), all.expect("a hash"))
    }
}

#[test]
fn a_slower_instance_does_not_move_copied_overrides_back() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    assert_eq!(steps.adopt("first", ("", "copying"), ("begin", 0), &[]), "made");
    assert_eq!(steps.adopt("again", ("", "copying"), ("begin", 0), &[]), "made", "it was made before");
    assert_eq!(steps.adopt("first", ("", "other"), ("begin", 0), &[]), "other");
    steps.adopt("first", ("copying", "copying"), ("more", 3), &[(1, "a", "1"), (2, "b", "2"), (3, "c", "3")]);
    steps.adopt("first", ("copying", "copying"), ("more", 4), &[(4, "c", "")]);
    assert_eq!(steps.adopt("first", ("copying", "us"), ("end lineage 2 0", 3), &[]), "made");
    let named = |all: &[(&str, &str)]| {
        all.iter().map(|(id, payload)| ((*id).to_owned(), (*payload).to_owned())).collect()
    };
    assert_eq!(steps.state(), ("3".to_owned(), named(&[("a", "1"), ("b", "2")])));
    let part = |steps: &mut Steps, revision, changes: &[_]| {
        assert_eq!(steps.adopt("first", ("us", "us"), ("part 3", revision), changes), "made");
    };
    part(&mut steps, 9, &[(7, "a", ""), (8, "b", "8"), (9, "d", "9")]);
    let last = ("9".to_owned(), named(&[("b", "8"), ("d", "9")]));
    assert_eq!(steps.state(), last);
    // Read before the others were.
    part(&mut steps, 6, &[(4, "a", "4"), (5, "b", "5"), (6, "d", "")]);
    part(&mut steps, 6, &[]);
    assert_eq!(steps.state(), last);
    part(&mut steps, 11, &[(9, "d", "9"), (10, "a", "10")]);
    let last = ("11".to_owned(), named(&[("a", "10"), ("b", "8"), ("d", "9")]));
    assert_eq!(steps.state(), last);
    // Of a store that has lost the changes before these.
    assert_eq!(steps.adopt("first", ("us", "us"), ("part 12", 13), &[(13, "e", "13")]), "other");
    assert_eq!(steps.state(), last);
}

#[test]
fn a_whole_copy_that_lacks_what_it_has_gathered_replaces_nothing() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    assert_eq!(steps.adopt("first", ("", "us"), ("part 0", 1), &[(1, "own", "1")]), "made");
    let before = steps.state();
    steps.adopt("first", ("us", "copying:0"), ("begin", 0), &[]);
    steps.adopt("first", ("copying:0", "copying:2"), ("more", 2), &[(1, "a", "1"), (2, "b", "2")]);
    // After a failover that has lost the last step.
    let changes = [(3, "c", "3")];
    assert_eq!(steps.adopt("first", ("copying:3", "copying:4"), ("more", 4), &changes), "other");
    for (end, result) in [("end l 3 0", "lacking"), ("end l 1 0", "lacking"), ("end l 2 1", "lacking")] {
        assert_eq!(steps.adopt("first", ("copying:2", "eu"), (end, 2), &[]), result, "{end}");
        assert_eq!(steps.state(), before, "{end}");
    }
    assert_eq!(steps.adopt("first", ("copying:2", "failed"), ("release", 0), &[]), "made");
    assert_eq!((steps.time_to_live("copied-overrides"), steps.state()), (None, before), "it is freed");
}

#[test]
fn what_a_whole_copy_has_gathered_expires_until_it_replaces_overrides() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    let mut source = "";
    for (permission, does_expire) in [("-persist", false), ("+persist", true)] {
        redis::cmd("ACL").arg("SETUSER").arg("default").arg(permission).exec(&mut steps.0).expect("changed");
        steps.adopt("first", (source, "copying:0"), ("begin", 0), &[]);
        steps.adopt("first", ("copying:0", "copying:1"), ("more", 1), &[(1, "a", "1")]);
        for name in ["copied-overrides", "copied-override-revisions"] {
            let millis = steps.time_to_live(name).expect("gathered");
            assert_eq!((60_000..=600_000).contains(&millis), does_expire, "{name}: {millis} ms");
        }
        assert_eq!(steps.adopt("first", ("copying:1", "us"), ("end l 1 0", 1), &[]), "made");
        for name in ["overrides", "override-revisions"] {
            assert_eq!(steps.time_to_live(name), Some(-1), "{permission}: {name} does not expire");
        }
        source = "us";
    }
}

#[test]
fn what_a_whole_copy_replaces_is_freed_in_the_background_if_the_acl_permits_that() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    let mut source = "";
    for (permission, is_freed) in [("-unlink", false), ("+unlink", true)] {
        redis::cmd("ACL").arg("SETUSER").arg("default").arg(permission).exec(&mut steps.0).expect("changed");
        assert_eq!(steps.adopt("first", (source, "copying"), ("begin", 3), &[]), "made");
        let changes = [(3, permission, "1")];
        assert_eq!(steps.adopt("first", ("copying", "copying"), ("more", 3), &changes), "made");
        assert_eq!(steps.adopt("first", ("copying", "us"), ("end lineage 1 0", 3), &[]), "made");
        source = "us";
        let all = BTreeMap::from([(permission.to_owned(), "1".to_owned())]);
        assert_eq!(steps.state(), ("3".to_owned(), all));
        let counts: String = redis::cmd("INFO").arg("commandstats").query(&mut steps.0).expect("a reply");
        let calls = counts.lines().find_map(|line| line.strip_prefix("cmdstat_unlink:calls="));
        assert_eq!(calls.is_some_and(|calls| !calls.starts_with('0')), is_freed, "{calls:?}");
    }
}

#[tokio::test]
async fn the_last_copy_stays_while_the_writing_region_is_cut_off_and_catches_up_by_itself() {
    let pair = Pair::start();
    let peer = Peer::new(&pair.writing);
    // Two instances of the region.
    let statuses = [RulesStatus::default(), RulesStatus::default()];
    let start = |status: &RulesStatus| {
        let copier = RulesCopier::new(pair.copying.clone(), status.clone(), Arc::new(peer.clone()));
        AbortOnDropHandle::new(tokio::spawn(copier.run()))
    };
    let _copiers = statuses.each_ref().map(start);
    let copied = async |version: u64| {
        until("it is copied", async || pair.copying.current().await == Ok(Some(version))).await;
    };
    pair.apply(None, &limit(1)).await;
    copied(1).await;
    until("both show the comparison", async || {
        let shown = statuses.each_ref().map(|status| status.now().copy.clone().unwrap_or_default());
        shown.iter().all(|copy| copy.compared_ms.is_some() && copy.region == "us-east")
    })
    .await;

    peer.is_cut.store(true, Ordering::Relaxed);
    pair.apply(Some(1), &limit(2)).await;
    pair.writing.put_entry(ban("a")).await.expect("put");
    until("a failure is shown", async || {
        let problem = |status: &RulesStatus| status.now().copy.as_ref()?.problem.clone();
        statuses.iter().any(|status| problem(status).as_deref() == Some("unreachable"))
    })
    .await;
    assert_eq!(pair.copying.current().await, Ok(Some(1)));
    let shown = |status: &RulesStatus| status.now().copy.as_ref().and_then(|copy| copy.compared_ms);
    let last = statuses.iter().map(shown).max().expect("two");

    peer.is_cut.store(false, Ordering::Relaxed);
    copied(2).await;
    until("lists are the same", async || pair.copying.runtime().await == pair.writing.runtime().await).await;
    until("the comparison is shown", async || statuses.iter().all(|status| shown(status) > last)).await;
    until("no problem is left", async || {
        statuses.iter().all(|status| status.now().copy.as_ref().is_some_and(|copy| copy.problem.is_none()))
    })
    .await;
}
