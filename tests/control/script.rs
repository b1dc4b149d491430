//! Replies of the script in situations that take too long to wait for.

use redis::Value;

use super::*;

const HEAD: &str = "head";

/// Runs an operation on keys and arguments that are as the script has them.
fn run(redis: &Redis, versions: &[&str], arguments: &[&str]) -> Value {
    let mut command = cmd("EVAL");
    command.arg(tollgate::control::CONTROL_SCRIPT).arg(6 + versions.len());
    command.arg(&[HEAD, "audit", "instances", "seen", "book", "system-book"]).arg(versions);
    let (name, rest) = arguments.split_first().expect("a name");
    command.arg(name).arg("changes").arg(rest);
    command.query(&mut redis.connect()).expect("it runs")
}

fn said(answer: Value) -> String {
    redis::from_redis_value(answer).expect("a text")
}

fn apply(redis: &Redis, number: u64, token: &str) {
    let based_on = if number == 1 { String::new() } else { (number - 1).to_string() };
    let key = format!("version:{number}");
    let arguments = ["apply", "first", token, &based_on, &number.to_string(), "{}", "files", "{}"];
    let answer: Vec<String> = redis::from_redis_value(run(redis, &[&key], &arguments)).expect("a list");
    assert_eq!(answer[0], "made");
}

/// Runs an operation on the operators' book.
fn on_book(redis: &Redis, arguments: &[&str]) -> Value {
    let [book, rest @ ..] = BOOK_KEYS;
    let mut command = cmd("EVAL");
    command.arg(tollgate::control::BOOK_SCRIPT).arg(7).arg(book).arg("audit").arg(&rest);
    let (name, rest) = arguments.split_first().expect("a name");
    command.arg(name).arg("changes").arg(rest);
    command.query(&mut redis.connect()).expect("it runs")
}

/// Makes a change of a record as it is expected, to a payload, or '' of its removal; returns the result.
fn change(redis: &Redis, attempt: &str, token: &str, (key, expected, payload): (&str, &str, &str)) -> String {
    let of_all = ["change", attempt, token, "all", "1000", "", "0", "lineage", "next"];
    let reply = on_book(redis, &[&of_all[..], &[key, expected, "0", payload, "{}"]].concat());
    let reply: Vec<String> = redis::from_redis_value(reply).expect("a list");
    reply[1].clone()
}

fn put(redis: &Redis, attempt: &str, token: &str, key: &str) -> String {
    change(redis, attempt, token, (key, "any", "{}"))
}

/// The payloads by key.
fn records(redis: &Redis) -> BTreeMap<String, String> {
    cmd("HGETALL").arg("records").query(&mut redis.connect()).expect("a reply")
}

/// A field of the head of the book.
fn in_head(redis: &Redis, field: &str) -> Option<String> {
    cmd("HGET").arg("book").arg(field).query(&mut redis.connect()).expect("a reply")
}

fn revision_of(redis: &Redis, key: &str) -> u64 {
    cmd("ZSCORE").arg("record-revisions").arg(key).query(&mut redis.connect()).expect("a revision")
}

/// Restores a record with a payload and a revision; returns the result.
fn restore(redis: &Redis, lineage: &str, (key, revision, payload): (&str, u64, &str)) -> String {
    let revision = revision.to_string();
    let of_all = ["restore", "first", "restored", "{}", lineage, &revision, "last", "0", "first"];
    said(on_book(redis, &[&of_all[..], &[&revision, key, "0", payload]].concat()))
}

fn confirmed_ago(redis: &Redis, field: &str, ms: u64) {
    let now = Clock::System.now().as_micros() / 1_000;
    cmd("HSET").arg(HEAD).arg(field).arg(now - ms).exec(&mut redis.connect()).expect("set");
}

#[test]
fn a_disconnected_instance_does_not_replace_rules_that_others_enforce() {
    let redis = Redis::start();
    apply(&redis, 1, "first");
    let put_back = |trail: &str, reach: &str| {
        let arguments = ["put_back", "first", "third", "3", "{}", trail, "files", "{}", "1", reach];
        said(run(&redis, &["version:3"], &arguments))
    };
    // Something else was made in between, or nothing that it comes after is left.
    assert_eq!(put_back("second other ", "steady"), "other");
    confirmed_ago(&redis, "confirmed", 1_000);
    assert_eq!(put_back("second first ", "cut off"), "other");
    // No instance enforces it, as after an outage of all.
    confirmed_ago(&redis, "confirmed", 40_000);
    assert_eq!(put_back("second first ", "cut off"), "made");
    assert_eq!(put_back("second first ", "cut off"), "kept");
}

#[test]
fn restored_records_do_not_replace_later_ones() {
    let redis = Redis::start();
    for key in ["a", "b"] {
        assert_eq!(put(&redis, "first", key, key), "made");
    }
    let (revision, is_there) = (revision_of(&redis, "b"), |key: &str| records(&redis).contains_key(key));
    let before = records(&redis);
    for (key, at, payload) in [("a", 7, "earlier"), ("a", 8, ""), ("b", revision, "the same")] {
        assert_eq!(restore(&redis, "lineage", (key, at, payload)), "kept");
        assert_eq!(records(&redis), before, "{payload}");
    }
    assert_eq!((in_head(&redis, "epoch"), in_head(&redis, "revision")), (None, Some(revision.to_string())));
    // Of which the store has neither a record nor a removal, or an earlier one: also from another lineage.
    for (lineage, key, at) in [("lineage", "c", 9), ("other", "d", 9), ("other", "b", revision + 5)] {
        assert_eq!(restore(&redis, lineage, (key, at, "restored")), "made");
        assert_eq!((&*records(&redis)[key], revision_of(&redis, key)), ("restored", at));
    }
    assert_eq!(in_head(&redis, "lineage").as_deref(), Some("lineage"));
    let (epoch, last) = (in_head(&redis, "epoch"), in_head(&redis, "revision"));
    assert!(epoch.is_some() && epoch == last, "all instances fetch all again: {epoch:?}, {last:?}");
    assert!(last > Some((revision + 5).to_string()), "it is the revision of the restoration");
    // A removal stays, unless what is restored was put later.
    assert_eq!(change(&redis, "first", "remove", ("d", "present", "")), "made");
    assert_eq!(restore(&redis, "other", ("d", 9, "restored")), "kept");
    assert!(!is_there("d"));
    // One that the store has lost is restored.
    assert_eq!(restore(&redis, "lineage", ("c", revision + 7, "")), "made");
    assert!(!is_there("c"));
    assert_eq!(restore(&redis, "lineage", ("c", revision + 6, "restored")), "kept");
    assert!(!is_there("c"));
}

#[test]
fn a_copy_of_another_region_takes_no_records_of_another_lineage() {
    let redis = Redis::start();
    assert_eq!(put(&redis, "first", "a", "a"), "made");
    cmd("HSET").arg("book").arg("source").arg("us-east:l:1").exec(&mut redis.connect()).expect("set");
    let before = records(&redis);
    assert_eq!(restore(&redis, "other", ("b", u64::pow(2, 52), "own")), "other");
    assert_eq!((records(&redis), in_head(&redis, "source").is_some()), (before, true));
    // What it has lost itself is restored; then the next copy begins anew.
    assert_eq!(restore(&redis, "lineage", ("b", 7, "copied")), "made");
    assert_eq!((&*records(&redis)["b"], in_head(&redis, "source")), ("copied", None));
}

#[test]
fn a_change_is_made_if_its_record_is_as_expected() {
    let redis = Redis::start();
    let made =
        |expected: &str, payload: &str| change(&redis, "first", "t", ("a", expected, payload)) == "made";
    assert!(!made("present", "") && !made("7", "1") && made("absent", "1") && !made("absent", "2"));
    let first = revision_of(&redis, "a");
    assert!(made("present", "2") && !made(&first.to_string(), "3"));
    let second = revision_of(&redis, "a");
    assert!(second > first && made(&second.to_string(), "4") && made("any", ""));
    assert!(!made("present", "") && !made(&second.to_string(), "5") && records(&redis).is_empty());
    let entries: usize = cmd("XLEN").arg("audit").query(&mut redis.connect()).expect("a number");
    assert_eq!(entries, 4, "each that was made has an audit log entry");
}

#[test]
fn of_several_changes_all_or_none_are_made_or_each_that_can_be() {
    let redis = Redis::start();
    let pair = |scope: &str, most: &str| -> Vec<String> {
        let of_all = ["change", "first", "t", scope, most, "", "0", "lineage", "next"];
        let both = [["a", "absent", "0", "1", "{}"], ["b", "absent", "0", "1", "{}"]].concat();
        let reply = redis::from_redis_value(on_book(&redis, &[&of_all[..], &both].concat()));
        reply.map(|reply: Vec<String>| reply[1..].to_vec()).expect("a list")
    };
    assert_eq!(pair("all", "1"), ["made", "full"]);
    assert_eq!(records(&redis).len(), 0);
    assert_eq!(pair("each", "1"), ["made", "full"]);
    assert_eq!(records(&redis).len(), 1);
    assert_eq!(pair("all", "9"), ["unlike", "made"]);
    assert_eq!(records(&redis).len(), 1);
    assert_eq!(pair("each", "9"), ["unlike", "made"]);
    assert_eq!(records(&redis).len(), 2);
}

#[test]
fn a_repeated_change_is_recognized_after_many_others() {
    let redis = Redis::start();
    for number in 0..100 {
        assert_eq!(put(&redis, "first", &format!("token {number}"), &number.to_string()), "made");
    }
    let remove = |attempt, token| change(&redis, attempt, token, ("7", "present", ""));
    assert_eq!(remove("first", "remove"), "made");
    for number in 100..450 {
        put(&redis, "first", &format!("token {number}"), &number.to_string());
    }
    let before = revision_of(&redis, "0");
    assert_eq!(put(&redis, "again", "token 0", "0"), "made");
    assert_eq!(revision_of(&redis, "0"), before, "it is not made again");
    assert_eq!(remove("again", "remove"), "made");
    assert_eq!(remove("again", "another"), "unlike");
    let entries: usize = cmd("XLEN").arg("audit").query(&mut redis.connect()).expect("a number");
    assert_eq!(entries, 451);
}

#[test]
fn a_change_waits_for_the_lost_state_of_an_empty_store() {
    let redis = Redis::start();
    let put = |lineage: &str, revision: u64| -> Vec<String> {
        let revision = revision.to_string();
        let change = ["change", "first", "a", "all", "9", lineage, &revision, "lineage", "next"];
        let change = [&change[..], &["a", "any", "0", "{}", "{}"]].concat();
        redis::from_redis_value(on_book(&redis, &change)).expect("a list")
    };
    assert_eq!(put("lineage", 7), ["lost"]);
    assert_eq!(put("", 0)[1], "made");
    assert_eq!(put("lineage", revision_of(&redis, "a"))[1], "made");
    // The instance has a later state than the store.
    assert_eq!(put("lineage", u64::pow(2, 52)), ["lost"]);
    assert_eq!(put("other", u64::pow(2, 52))[1], "made");
}

#[test]
fn a_restoration_stops_if_the_store_has_lost_what_comes_before() {
    let redis = Redis::start();
    let restore = |from: &str, place: &str| {
        let of_all = ["restore", "first", "t", "{}", "lineage", "9", "last", from, place];
        said(on_book(&redis, &[&of_all[..], &["9", "a", "0", "{}"]].concat()))
    };
    assert_eq!((restore("7", "first"), restore("0", "next")), ("lost".to_owned(), "lost".to_owned()));
    assert_eq!((records(&redis).len(), in_head(&redis, "lineage")), (0, None));
    assert_eq!(restore("0", "first"), "made");
    assert_eq!(restore("7", "next"), "kept");
}
