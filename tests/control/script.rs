//! Replies of the script in situations that take too long to wait for.

use redis::Value;

use super::*;

const HEAD: &str = "head";

/// Runs an operation on keys and arguments that are as the script has them.
fn run(redis: &Redis, versions: &[&str], arguments: &[&str]) -> Value {
    let mut command = cmd("EVAL");
    command.arg(tollgate::control::CONTROL_SCRIPT).arg(6 + versions.len());
    command.arg(&[HEAD, "audit", "entries", "switches", "instances", "seen"]).arg(versions);
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

fn put(redis: &Redis, attempt: &str, token: &str, field: &str) -> String {
    said(run(redis, &[], &["change", attempt, token, "{}", "put", "3", field, "0\n{}", "1000", "none"]))
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
fn a_disconnected_instance_does_not_replace_lists_that_others_enforce() {
    let redis = Redis::start();
    assert_eq!(put(&redis, "first", "first", "a"), "made");
    let put_back = |trail: &str, reach: &str| {
        said(run(
            &redis,
            &[],
            &["put_runtime_back", "first", "third", "3", trail, "{}", reach, "3", "b", "0\n{}"],
        ))
    };
    assert_eq!(put_back("second other ", "steady"), "other");
    confirmed_ago(&redis, "runtime_confirmed", 1_000);
    assert_eq!(put_back("second first ", "cut off"), "other");
    confirmed_ago(&redis, "runtime_confirmed", 40_000);
    assert_eq!(put_back("second first ", "cut off"), "made");
    let fields: Vec<String> = cmd("HKEYS").arg("entries").query(&mut redis.connect()).expect("a reply");
    assert_eq!(fields, ["b"]);
}

#[test]
fn a_repeated_change_is_recognized_after_many_others() {
    let redis = Redis::start();
    for number in 0..300 {
        assert_eq!(put(&redis, "first", &format!("token {number}"), &number.to_string()), "made");
    }
    let remove = |attempt, token| {
        said(run(&redis, &[], &["change", attempt, token, "{}", "remove", "3", "7", "", "0", "none"]))
    };
    assert_eq!(remove("first", "remove"), "made");
    for number in 300..600 {
        put(&redis, "first", &format!("token {number}"), &number.to_string());
    }
    assert_eq!(put(&redis, "again", "token 0", "0"), "made");
    assert_eq!(remove("again", "remove"), "made");
    assert_eq!(remove("again", "another"), "none");
    let generation: u64 =
        cmd("HGET").arg(HEAD).arg("generation").query(&mut redis.connect()).expect("a reply");
    assert_eq!(generation, 601);
}

#[test]
fn a_change_waits_for_the_lost_state_of_an_empty_store() {
    let redis = Redis::start();
    let put = |known| {
        said(run(&redis, &[], &["change", "first", "a", "{}", "put", "3", "a", "0\n{}", "1000", known]))
    };
    assert_eq!(put("some"), "lost");
    assert_eq!(put("none"), "made");
}
