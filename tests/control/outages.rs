//! Times without the store.

use tollgate::control::Added;

use super::*;

fn arguments(url: &str) -> Vec<String> {
    let arguments =
        ["--store", url, "--rules", "redis", "--on-store-error", "local", "--ready-without-store"];
    arguments.map(str::to_owned).into()
}

fn strs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn the_last_good_rules_stay_while_redis_is_silent_and_newer_ones_follow_its_recovery() {
    let redis = Redis::start();
    let (_tollgate, mut client) = Tollgate::serving_one(&limit(1), &strs(&arguments(&redis.url()))).await;
    let control = redis_control(&redis.url(), "");
    control.apply(draft(Some(1), &limit(2))).await.expect("made");
    enforced(&mut client, 2, Instant::now()).await;

    redis.signal("STOP");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        assert_eq!(limit_of(&mut client).await, Some(2));
        sleep(Duration::from_millis(50)).await;
    }
    redis.signal("CONT");
    let made = control.apply(draft(Some(2), &limit(3))).await.expect("made");
    let back = Instant::now();
    enforced(&mut client, 3, back).await;
    let instances = control.instances().await.expect("a reply");
    assert!(instances.len() == 1 && instances[0].version <= Some(made.number));
}

/// Applies versions 2 to 5, and adds an automatic entry and a list entry.
async fn change_all(control: &Control) {
    for number in 1..5 {
        control
            .apply(draft(Some(number), &limit(10 + u32::try_from(number).expect("small"))))
            .await
            .expect("made");
    }
    let automatic = automatic("k", "abusive", Duration::from_secs(600));
    // Read by the instances with the list entry at the latest.
    assert_eq!(control.add_automatic(vec![automatic]).await, Ok(vec![Added::Listed]));
    put_entry(control, ban("bad")).await.expect("put");
}

/// The records of a book in Redis.
fn stored(redis: &Redis, name: &str) -> BTreeMap<String, String> {
    cmd("HGETALL").arg(rules_key(name)).query(&mut redis.connect()).expect("a reply")
}

/// Waits until all instances enforce the lists of a generation.
async fn lists_enforced(control: &Control, generation: u64, deadline: Instant) {
    while control.instances().await.expect("a reply").iter().any(|reported| reported.generation != generation)
    {
        assert!(Instant::now() < deadline, "the lists are not enforced");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_version_lost_by_redis_is_restored_under_its_number() {
    let redis = Redis::start();
    let directory = rules(&limit(1));
    let url = redis.url();
    let both = [(); 2].map(|()| Tollgate::spawn(directory.path(), &strs(&arguments(&url))));
    both.iter().for_each(Tollgate::wait_until_ready);
    let control = redis_control(&url, "");
    change_all(&control).await;
    let mut clients = [both[0].client().await, both[1].client().await];
    for client in &mut clients {
        enforced(client, 14, Instant::now()).await;
    }
    let kept = control.version(5).await.expect("a reply");
    let lists = [stored(&redis, "records"), stored(&redis, "system-records")];
    let deadline = Instant::now() + Duration::from_secs(20);
    lists_enforced(&control, head_in(&control).await.revision, deadline).await;

    assert_eq!(lists.each_ref().map(BTreeMap::len), [1, 1]);
    cmd("FLUSHALL").exec(&mut redis.connect()).expect("flushed");
    until("nothing is put back", async || {
        control.current().await == Ok(Some(5))
            && [stored(&redis, "records"), stored(&redis, "system-records")] == lists
    })
    .await;
    assert_eq!(control.version(5).await, Ok(kept.clone()));
    // Once each, whichever instance did it.
    let audit = control.audit(None, 10).await.expect("a reply");
    assert!(audit.len() == 3 && audit.iter().all(|entry| entry.author == "tollgate"), "{audit:?}");

    // Only the version, as where memory is short.
    cmd("DEL").arg("{tollgate-rules}:version:5").exec(&mut redis.connect()).expect("removed");
    until("the version is not put back", async || control.version(5).await == Ok(kept.clone())).await;
    control.apply(draft(Some(5), &limit(99))).await.expect("made");
    for client in &mut clients {
        enforced(client, 99, Instant::now()).await;
    }
    assert_eq!(control.current().await, Ok(Some(6)));
}

#[tokio::test]
async fn an_instance_that_starts_without_redis_waits_for_its_rules() {
    let port = free_port();
    let directory = rules(&limit(1));
    let url = format!("redis://127.0.0.1:{port}");
    let tollgate = Tollgate::spawn(directory.path(), &strs(&arguments(&url)));
    // It listens, and is not ready.
    until("it does not listen", async || {
        http::try_get(&tollgate.url("/healthcheck")).is_some_and(|answer| answer.status == 500)
    })
    .await;
    let _redis = Redis::start_on(port, &[]);
    tollgate.wait_until_ready();
    assert_eq!(limit_of(&mut tollgate.client().await).await, Some(1));
}

#[tokio::test]
async fn versions_without_a_directory_suffice_to_start() {
    let redis = Redis::start();
    let control = redis_control(&redis.url(), "");
    control.apply(draft(None, &limit(4))).await.expect("made");
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    assert!(fs::metadata(&missing).is_err());
    let tollgate = Tollgate::start(&missing, &strs(&arguments(&redis.url())));
    assert_eq!(limit_of(&mut tollgate.client().await).await, Some(4));
}

/// Starts an instance with a directory for its state, and without waiting for its readiness.
fn with_state(url: &str, state: &Path) -> Tollgate {
    let missing = state.join("missing");
    let state = state.display().to_string();
    let arguments =
        ["--store", url, "--rules", "redis", "--on-store-error", "local", "--state-directory", &state];
    Tollgate::spawn_logging(command(), &missing, &arguments)
}

/// Message of the log line.
const FROM_DISK: &str = "started from the last version on disk";

/// Runs an instance on versions 1 and 2 until they are on its disk.
async fn keep_on_disk(redis: &Redis, state: &Path) {
    let control = redis_control(&redis.url(), "");
    control.apply(draft(None, &limit(1))).await.expect("made");
    control.apply(draft(Some(1), &limit(2))).await.expect("made");
    let instance = with_state(&redis.url(), state);
    instance.wait_until_ready();
    let file = state.join("rules.json");
    until("the version is not on disk", async || file.exists()).await;
    assert!(instance.logged(FROM_DISK).is_empty(), "{}", instance.log());
}

#[tokio::test]
async fn an_instance_that_starts_without_redis_has_its_last_version_until_redis_responds() {
    let (redis, state) = (Redis::start(), tempfile::tempdir().expect("a directory"));
    keep_on_disk(&redis, state.path()).await;
    let (port, url) = (redis.port(), redis.url());
    drop(redis);
    let instance = with_state(&url, state.path());
    instance.wait_until_ready();
    let mut client = instance.client().await;
    assert_eq!(limit_of(&mut client).await, Some(2));
    let lines = instance.logged(FROM_DISK);
    assert!(lines.len() == 1 && lines[0].contains("version=2"), "{lines:?}");

    // It has lost everything, and got others since.
    let _redis = Redis::start_on(port, &[]);
    let control = redis_control(&url, "");
    until("the version is not restored", async || control.current().await == Ok(Some(2))).await;
    control.apply(draft(Some(2), &limit(3))).await.expect("made");
    enforced(&mut client, 3, Instant::now()).await;
}

#[tokio::test]
async fn an_instance_from_disk_takes_the_newer_version_of_a_redis_that_returns() {
    let (redis, state) = (Redis::start(), tempfile::tempdir().expect("a directory"));
    keep_on_disk(&redis, state.path()).await;
    let control = redis_control(&redis.url(), "");
    control.apply(draft(Some(2), &limit(3))).await.expect("made");
    redis.signal("STOP");
    let instance = with_state(&redis.url(), state.path());
    instance.wait_until_ready();
    let mut client = instance.client().await;
    assert_eq!(limit_of(&mut client).await, Some(2));
    redis.signal("CONT");
    enforced(&mut client, 3, Instant::now()).await;
    let file = state.path().join("rules.json");
    until("the version is not on disk", async || {
        fs::read_to_string(&file).is_ok_and(|text| text.contains("\"number\":3"))
    })
    .await;
}

#[tokio::test]
async fn an_instance_from_disk_is_not_ready_if_redis_refuses_its_login() {
    let (redis, state) = (Redis::start(), tempfile::tempdir().expect("a directory"));
    keep_on_disk(&redis, state.path()).await;
    let (port, url) = (redis.port(), redis.url());
    drop(redis);
    let _redis = Redis::start_on(port, &["--requirepass", "other"]);
    let instance = with_state(&url, state.path());
    until("the rules are not active", async || !instance.logged(FROM_DISK).is_empty()).await;
    until("the reason is not shown", async || {
        http::try_get(&instance.url("/ready"))
            .is_some_and(|answer| answer.status == 500 && answer.body.contains("NOAUTH"))
    })
    .await;
}

#[tokio::test]
async fn the_last_version_on_disk_is_restored_to_an_empty_redis() {
    let (redis, state) = (Redis::start(), tempfile::tempdir().expect("a directory"));
    keep_on_disk(&redis, state.path()).await;
    cmd("FLUSHALL").exec(&mut redis.connect()).expect("flushed");
    let instance = with_state(&redis.url(), state.path());
    instance.wait_until_ready();
    assert_eq!(limit_of(&mut instance.client().await).await, Some(2));
    let control = redis_control(&redis.url(), "");
    until("the version is not restored", async || control.current().await == Ok(Some(2))).await;
}

#[tokio::test]
async fn a_damaged_version_on_disk_is_reported_and_kept_aside() {
    let state = tempfile::tempdir().expect("a directory");
    fs::write(state.path().join("rules.json"), "{").expect("written");
    let port = free_port();
    let instance = with_state(&format!("redis://127.0.0.1:{port}"), state.path());
    until("it is not reported", async || {
        let lines = instance.logged("last version on disk is damaged");
        lines.iter().any(|line| line.contains("rules.json") && line.contains("not a version"))
    })
    .await;
    assert!(state.path().join("rules.json.damaged").exists());
    // As without a directory.
    until("it does not listen", async || {
        http::try_get(&instance.url("/ready")).is_some_and(|answer| answer.status == 500)
    })
    .await;
    let redis = Redis::start_on(port, &[]);
    redis_control(&redis.url(), "").apply(draft(None, &limit(4))).await.expect("made");
    instance.wait_until_ready();
    assert_eq!(limit_of(&mut instance.client().await).await, Some(4));
}
