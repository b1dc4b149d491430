//! Isolation of bad versions and foreign records, and the cost of many changes.

use futures_util::future::join_all;
use tollgate::control::Action;

use super::*;

/// Puts a record that may be one of another release, or removes it; returns the result.
fn put_raw(redis: &Redis, (key, payload): (&str, &str)) -> String {
    let keys = BOOK_KEYS.map(rules_key);
    let [book, records, revisions, removals, ends, heads] = keys;
    let mut call = cmd("EVAL");
    call.arg(tollgate::control::BOOK_SCRIPT).arg(7);
    call.arg(book).arg(rules_key("audit")).arg(&[records, revisions, removals, ends, heads]);
    call.arg(&["change", &rules_key("changes"), "first", "token", "all", "1000", "", "0", "lineage", "next"]);
    call.arg(&[key, "any", "0", payload, "{}"]);
    let reply: Vec<String> = call.query(&mut redis.connect()).expect("a reply");
    reply.last().expect("a result").clone()
}

/// The number of times that the server has run a command.
fn calls(redis: &Redis, command: &str) -> u64 {
    let stats: String =
        cmd("INFO").arg("commandstats").query(&mut redis.connect()).expect("it has statistics");
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn records_of_another_release_are_reported_and_hide_nothing_else() {
    let redis = Redis::start();
    let directory = rules(&limit(1));
    // Rules of a directory too.
    let tollgate = Tollgate::start(directory.path(), &["--store", &redis.url(), "--log-level", "error"]);
    let mut connection = redis.connect();
    let hset = |key: &str, field: &str, value: &str| {
        let mut command = cmd("HSET");
        command.arg(rules_key(key)).arg(field).arg(value);
        command
    };
    let unknown = ("00000000000000000000000000000001", r#"{"kind": "greylist", "id": "x"}"#);
    assert_eq!(put_raw(&redis, unknown), "made");
    hset("instances", "later", "{\"id\": 7}").exec(&mut connection).expect("set");
    hset("seen", "later", &u64::MAX.to_string()).exec(&mut connection).expect("set");
    let control = redis_control(&redis.url(), "");
    put_entry(&control, ban("v")).await.expect("put");
    let mut client = tollgate.client().await;
    until("the ban has no effect", async || limit_of(&mut client).await.is_none()).await;
    until("the problem is reported", async || {
        let reported = control.instances().await.expect("one is readable");
        let problem = reported.first().and_then(|reported| reported.problem.clone()).unwrap_or_default();
        reported.len() == 1 && problem.contains("is omitted") && problem.contains("greylist")
    })
    .await;
    assert_eq!(put_raw(&redis, (unknown.0, "")), "made");
    put_entry(&control, ban("w")).await.expect("put");
    until("it is over", async || control.instances().await.expect("a reply")[0].problem.is_none()).await;
}

#[tokio::test]
async fn list_entries_of_an_earlier_release_keep_their_meaning() {
    let redis = Redis::start();
    let control = reconciled(redis_control(&redis.url(), ""));
    let put = ListEntry { descriptor: vec![ListPair::pattern("k", "ab*")], ..ban("1") };
    put_entry(&control, put.clone()).await.expect("put");
    let of_entry = async || payloads_in(&control).await.into_iter().next().expect("stored");
    let (key, stored) = of_entry().await;
    // An entry without exact values has the form that earlier releases read.
    let stored = String::from_utf8(stored).expect("a text");
    assert!(stored.contains(r#"[{"key":"k","value":"ab*"}]"#), "{stored}");
    let earlier = r#"{"kind": "list_entry", "list": "deny", "domain": "*", "reason": "earlier",
        "descriptor": [{"key": "k", "value": "ab*"}], "author": "ada", "created_at_ms": 1, "expires_at_ms": null}"#;
    assert_eq!(put_raw(&redis, (&key, earlier)), "made");
    let earlier = ListEntry { reason: "earlier".into(), ..put };
    held(&control, |runtime| runtime.entries == [earlier.clone()]).await;
}

#[tokio::test]
async fn an_instance_that_starts_with_a_bad_or_lost_version_enforces_an_earlier_one() {
    let redis = Redis::start();
    let control = redis_control(&redis.url(), "");
    control.apply(draft(None, &limit(1))).await.expect("made");
    control.apply(draft(Some(1), &limit(2))).await.expect("made");
    control.apply(draft(Some(2), "domain: [")).await.expect("made");
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["--store", &redis.url(), "--rules", "redis", "--log-level", "error"];
    let tells = async |what: &str, version: u64| {
        until(what, async || {
            let reported = control.instances().await.expect("a reply");
            let is_reported = |problem: &String| problem.contains(what);
            reported.iter().any(|reported| {
                reported.version == Some(version) && reported.problem.as_ref().is_some_and(is_reported)
            })
        })
        .await;
    };
    {
        let tollgate = Tollgate::start(directory.path(), &arguments);
        let mut client = tollgate.client().await;
        assert_eq!(limit_of(&mut client).await, Some(2));
        tells("version 3 is not valid", 2).await;
        control.apply(draft(Some(3), &limit(4))).await.expect("made");
        enforced(&mut client, 4, Instant::now()).await;
    }
    // No instance has it any more.
    cmd("DEL").arg("{tollgate-rules}:version:4").exec(&mut redis.connect()).expect("removed");
    let tollgate = Tollgate::start(directory.path(), &arguments);
    let mut client = tollgate.client().await;
    assert_eq!(limit_of(&mut client).await, Some(2));
    tells("the store has lost version 4", 2).await;
    control.apply(draft(Some(4), &limit(5))).await.expect("made");
    enforced(&mut client, 5, Instant::now()).await;
}

#[tokio::test]
async fn many_list_changes_are_fetched_rarely_and_notes_never() {
    let redis = Redis::start();
    let _tollgate = Tollgate::serving(&limit(1), &["--store", &redis.url(), "--log-level", "error"]);
    let control = redis_control(&redis.url(), "");
    // A change looks for records that have ended, a fetch for records and for removals.
    let count = || (calls(&redis, "zrangebyscore"), calls(&redis, "pexpire") / 2);
    let (before, begun) = (count(), Instant::now());
    // No change waits for the one before to be enforced.
    let (mut number, mut puts) = (0_u32, Vec::new());
    while begun.elapsed() < Duration::from_secs(2) {
        let (control, entry) = (control.clone(), ban(&format!("{}", number % 500)));
        puts.push(tokio::spawn(async move { put_entry(&control, entry).await.expect("put") }));
        number += 1;
        sleep(Duration::from_millis(5)).await;
    }
    join_all(puts).await.into_iter().for_each(|put| drop(put.expect("no panic")));
    let mut revision = cmd("HGET");
    let revision =
        revision.arg(rules_key("book")).arg("revision").query(&mut redis.connect()).expect("a reply");
    until("the last one is enforced", async || {
        control.instances().await.expect("a reply").first().map(|reported| reported.generation)
            == Some(revision)
    })
    .await;
    let (after, lasted) = (count(), u64::try_from(begun.elapsed().as_millis()).expect("small"));
    let (fetches, beats) = ((after.0 - before.0 - u64::from(number)) / 2, after.1 - before.1);
    eprintln!("{number} changes in {lasted} ms: {fetches} fetches, {beats} beats");
    assert!(number > 50 && fetches > 2, "{number} changes, {fetches} fetches");
    assert!(fetches <= beats, "{fetches} fetches by {beats} beats");
    assert!(beats <= lasted / 100 + 3, "{beats} beats in {lasted} ms");

    let reported = calls(&redis, "publish");
    control.record_audit("ada", Action::ResetCounter, "web k=v", "").await.expect("noted");
    assert_eq!(calls(&redis, "publish"), reported);
    put_entry(&control, ban("last")).await.expect("put");
    assert_eq!(calls(&redis, "publish"), reported + 1);
}
