//! Permissions that the Redis user needs.

use tollgate::control::{Draft, Files, Record, RulesSource, SwitchMode};

use crate::control::{denied, put, put_entry, reconciled, remove, switched};
use crate::docs::block;
use crate::support::prelude::*;
use crate::support::redis::{COMMANDS, RULES_COMMANDS, guarded};

/// The words of the documented line for an ACL file.
fn documented() -> Vec<String> {
    let line = block("acl");
    let rights = line.strip_prefix("user tollgate ").expect("the user");
    rights.split_whitespace().map(str::to_owned).collect()
}

/// A server with the documented user.
fn server() -> (Redis, String) {
    let line = documented();
    let user: Vec<&str> = ["--user", "tollgate"].into_iter().chain(line.iter().map(String::as_str)).collect();
    let redis = Redis::start_with(&user);
    let url = format!("redis://tollgate:secret@127.0.0.1:{}", redis.port());
    (redis, url)
}

/// The commands that the server refused, by its log.
fn refused(redis: &Redis) -> Vec<String> {
    let log: Vec<redis::Value> =
        cmd("ACL").arg("LOG").query(&mut redis.connect()).expect("the server reports");
    log.iter().map(|entry| format!("{entry:?}")).collect()
}

/// Rules with each kind of counter, under a limit that shows their version.
fn text(limit: u32) -> String {
    let rule = |algorithm: &str| {
        format!(
            "- {{key: {algorithm}, rate_limit: {{algorithm: {algorithm}, unit: year, requests_per_unit: {limit}}}}}\n"
        )
    };
    let windows: String =
        ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket"].map(rule).concat();
    let places = format!(
        "- {{key: places, rate_limit: {{algorithm: concurrency, requests_per_unit: {limit}, lease_ttl: 60s}}}}\n"
    );
    format!("domain: web\ndescriptors:\n{windows}{places}")
}

/// Waits until the answer about a key is what `is_right` wants, and says how long that took.
async fn until(client: &mut Client, key: &str, is_right: impl Fn(u32, bool) -> bool, what: &str) -> Duration {
    let begun = Instant::now();
    loop {
        let answer = client.call(request("web", &[&[(key, "v")]])).await.expect("an answer");
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
        if is_right(limit, answer.overall_code() == 1.try_into().expect("OK")) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {answer:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until both instances subscribe to changes of the rules.
async fn subscribed(redis: &Redis) {
    let channel = "p:{tollgate-rules}:changes";
    let hearers = || -> usize {
        let mut reply = cmd("PUBSUB");
        let reply: (String, usize) =
            reply.arg("NUMSUB").arg(channel).query(&mut redis.connect()).expect("a reply");
        reply.1
    };
    crate::support::until("nobody listens", async || hearers() == 2).await;
}

/// Puts and removes a list entry and a switch, each of which has to take effect.
async fn change_lists_and_switches(control: &Control, client: &mut Client) {
    let entry = denied("web", "fixed_window", "v");
    put_entry(control, entry.clone()).await.expect("put");
    until(client, "fixed_window", |_, passes| !passes, "the list").await;
    assert!(remove(control, Record::ListEntry(entry), "ada").await.expect("removed"));
    until(client, "fixed_window", |_, passes| passes, "the list").await;
    let off = Record::Switch(switched("web", "token_bucket", SwitchMode::Off));
    put(control, off.clone()).await.expect("put");
    until(client, "token_bucket", |limit, _| limit == 0, "the switch").await;
    assert!(remove(control, off, "ada").await.expect("removed"));
    until(client, "token_bucket", |limit, _| limit > 0, "the switch").await;
}

#[tokio::test]
async fn the_documented_acl_suffices_for_every_feature() {
    let (redis, url) = server();
    let arguments = ["--store", &url, "--store-timeout", "2s", "--key-prefix", "p:", "--rules", "redis"];
    let instances = [(); 2].map(|()| Tollgate::logging(&text(1_000), &arguments));
    let mut client = instances[0].client().await;
    for key in ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket", "places"] {
        until(&mut client, key, |limit, passes| limit == 1_000 && passes, key).await;
    }

    // A notified instance needs no poll.
    subscribed(&redis).await;
    let settings = RedisSettings { key_prefix: "p:".into(), ..settings(&url) };
    let control = reconciled(Control::redis(RulesSource::Redis, &settings).expect("valid settings"));
    for version in 1..5 {
        let limit = 1_000 + u32::try_from(version).expect("small");
        let files = Files::from([("rules.yaml".to_owned(), text(limit))]);
        let (author, comment) = ("ada".to_owned(), String::new());
        let draft = Draft { files, based_on: Some(version), rollback_to: None, author, comment };
        control.apply(draft).await.expect("made");
        until(&mut client, "fixed_window", |found, _| found == limit, "the version").await;
    }

    change_lists_and_switches(&control, &mut client).await;
    assert_eq!(control.versions(None, 10).await.expect("a reply").len(), 5);
    assert!(control.version(2).await.expect("a reply").is_some());
    assert_eq!(control.instances().await.expect("a reply").len(), 3, "with that of the test");
    assert!(control.audit(None, 100).await.expect("a reply").len() >= 9);

    assert_eq!(refused(&redis), Vec::<String>::new());
    for log in instances.each_ref().map(Tollgate::log) {
        assert!(!log.contains(" WARN ") && !log.contains("ERROR"), "{log}");
    }
}

/// Each command covered by other tests, plus only those that receive notifications.
#[test]
fn the_documented_acl_names_every_tested_command() {
    let line = documented();
    let named: BTreeSet<&str> = line.iter().filter_map(|word| word.strip_prefix('+')).collect();
    let known = COMMANDS.into_iter().chain(RULES_COMMANDS).chain(["publish", "subscribe"]);
    assert_eq!(named, known.collect());
}

#[tokio::test]
async fn a_user_for_limits_alone_suffices_with_rules_from_a_directory() {
    let redis = Redis::start_with(&guarded("word", &[]));
    let url = format!("redis://app:word@127.0.0.1:{}", redis.port());
    let arguments = ["--store", &url, "--store-timeout", "2s", "--key-prefix", "guarded:"];
    let tollgate = Tollgate::logging(&text(1_000), &arguments);
    let mut client = tollgate.client().await;
    tollgate.wait_for_log("Redis ACL denies lists and switches");
    // Longer than what goes well takes from one look to the next.
    sleep(Duration::from_millis(2_500)).await;
    until(&mut client, "fixed_window", |limit, passes| limit == 1_000 && passes, "the limit").await;
    let log = tollgate.log();
    assert_eq!((log.matches(" WARN ").count(), log.matches("ERROR").count()), (1, 0), "{log}");
    let page = tollgate.metrics();
    assert!(page.contains("tollgate_rules_store_up 1\n"), "{page}");
    let refused = refused(&redis);
    assert!(refused.len() == 1 && refused[0].contains("hset"), "{refused:?}");
}

#[tokio::test]
async fn without_setrange_cells_are_stored_whole_and_limits_are_as_exact() {
    let (redis, url) = Redis::lacking("setrange");
    let (_tollgate, mut client) =
        Tollgate::serving_one(&text(40), &["--store", &url, "--store-timeout", "5s"]).await;
    let mut admitted = 0;
    for _ in 0..60 {
        let answer = client.call(request("web", &[&[("fixed_window", "v")]])).await.expect("an answer");
        admitted += u32::from(answer.overall_code() == 1.try_into().expect("OK"));
    }
    assert_eq!(admitted, 40);
    let refused = refused(&redis);
    assert!(refused.iter().any(|entry| entry.contains("setrange")), "{refused:?}");
}
