//! Servers that stall, slow down, end or recover.

use super::*;

/// The detection time of a silent server: 100 ms, or some more checks if a busy machine delays these.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

/// The time until a recovered server is used again.
const HEALS_WITHIN: Duration = Duration::from_secs(1);

/// Waits until a counter is decided again, and then for as long as to see that it stays so.
async fn until_fine(store: &RedisStore) {
    until("it does not recover", async || charge(store, &one("fine", Hits::ONE)).await.is_ok()).await;
    sleep(Duration::from_millis(500)).await;
}

/// Course of the outage that began at `stopped`: after its end no call waits any more. Returns the time until the
/// breaker opened, and until the server was used again.
fn assert_opened_and_healed(all: &[Done], stopped: Instant, healed: Instant) -> (Duration, Duration) {
    let opened = all.iter().find(|done| done.is_open()).expect("the breaker opens").begun;
    println!("open {:?} after the last answer", opened - stopped);
    assert_at_once(all, opened + Duration::from_millis(5), healed);
    let fine = all.iter().find(|done| done.begun > healed && done.result.is_ok()).expect("it heals").begun;
    println!("decides again {:?} after the server does", fine - healed);
    let after: Vec<_> = all.iter().filter(|done| done.begun > fine + Duration::from_millis(50)).collect();
    // On a busy machine, calls may time out also then.
    assert_most(&after, |done| !done.is_refused());
    let longest = all.iter().map(|done| done.took).max().expect("calls");
    println!("the longest call took {longest:?}");
    assert_most(&all.iter().collect::<Vec<_>>(), |done| done.took < TIMEOUT + Duration::from_millis(50));
    (opened - stopped, fine - healed)
}

/// Checks most of the times of a few outages.
fn assert_times(times: &[(Duration, Duration)]) {
    let (opened, fine): (Vec<_>, Vec<_>) = times.iter().copied().unzip();
    for (bound, all) in [(OPENS_WITHIN, opened), (HEALS_WITHIN, fine)] {
        let late = all.iter().filter(|took| **took >= bound).count();
        assert!(late <= 1, "{late} are {bound:?} or longer: {all:?}");
    }
}

#[tokio::test]
async fn a_stalled_server_delays_few_calls_and_is_used_again_at_once() {
    // In the second round, its connection is dropped meanwhile; in the third, reconnects have failed.
    let mut times = Vec::new();
    for lasts in [500, 2_000, 3_500] {
        let redis = Redis::start();
        let store = brief(&redis.url()).await;
        let load = Load::start(&store, some_names());
        sleep(Duration::from_millis(200)).await;
        redis.signal("STOP");
        let stopped = Instant::now();
        sleep(Duration::from_millis(lasts)).await;
        let healed = Instant::now();
        redis.signal("CONT");
        until_fine(&store).await;
        times.push(assert_opened_and_healed(&load.end().await, stopped, healed));
    }
    assert_times(&times);
}

#[tokio::test]
async fn an_occasional_caller_waits_for_a_silent_server_once() {
    let redis = Redis::start();
    let store = brief(&redis.url()).await;
    recovered(&store, "a", Instant::now()).await;
    redis.signal("STOP");
    let mut slow = 0;
    for _ in 0..5 {
        let done = timed(&store, "a").await;
        assert!(done.result.is_err());
        slow += usize::from(!done.is_refused());
        sleep(Duration::from_millis(400)).await;
    }
    assert_eq!(slow, 1);
    redis.signal("CONT");
    recovered(&store, "a", Instant::now()).await;
}

#[tokio::test]
async fn a_server_that_delays_calls_is_used_again_when_it_recovers() {
    let redis = Redis::start_with(&["--enable-debug-command", "yes"]);
    let store = brief(&redis.url()).await;
    let mut times = Vec::new();
    // The third outlasts the connection; others are let in, and calls still held up.
    for (command, millis) in [
        ("CLIENT PAUSE 800", 800),
        ("CLIENT PAUSE 800 WRITE", 800),
        ("CLIENT PAUSE 4000 WRITE", 4_000),
        ("DEBUG SLEEP 0.8", 800),
    ] {
        let load = Load::start(&store, some_names());
        sleep(Duration::from_millis(100)).await;
        let mut admin = redis.connect();
        let stopped = Instant::now();
        let mut words = command.split(' ');
        let mut command = cmd(words.next().expect("a name"));
        words.for_each(|word| _ = command.arg(word));
        let executed = tokio::task::spawn_blocking(move || command.exec(&mut admin));
        // The server obeyed later than that, however late this is here.
        let healed = stopped + Duration::from_millis(millis - 10);
        sleep(healed.saturating_duration_since(Instant::now())).await;
        executed.await.expect("no panic").expect("obeyed");
        until_fine(&store).await;
        times.push(assert_opened_and_healed(&load.end().await, stopped, healed));
    }
    assert_times(&times);
}

#[tokio::test]
async fn a_slow_command_of_another_client_is_not_an_outage() {
    let redis = Redis::start_with(&["--enable-debug-command", "yes"]);
    let store = brief(&redis.url()).await;
    let load = Load::start(&store, some_names());
    let mut admin = redis.connect();
    for _ in 0..5 {
        sleep(Duration::from_millis(50)).await;
        admin = tokio::task::spawn_blocking(move || {
            cmd("DEBUG").arg("SLEEP").arg("0.05").exec(&mut admin).expect("obeyed");
            admin
        })
        .await
        .expect("no panic");
    }
    let all = load.end().await;
    // Each of the five is too short for it, if the machine does not add as much again.
    assert_most(&all.iter().collect::<Vec<_>>(), |done| !done.is_open());
    assert!(all.iter().any(|done| done.result.is_err()));
}

#[tokio::test]
async fn a_killed_server_fails_calls_at_once_and_decides_after_its_restart() {
    let port = free_port();
    let redis = Redis::start_on(port, &[]);
    let store = brief(&redis.url()).await;
    let load = Load::start(&store, some_names());
    sleep(Duration::from_millis(200)).await;
    drop(redis);
    let stopped = Instant::now();
    sleep(Duration::from_millis(1_500)).await;
    let begun = Instant::now();
    let redis = Redis::start_on(port, &[]);
    let back = Instant::now();
    until_fine(&store).await;
    let all = load.end().await;
    assert_at_once(&all, stopped + Duration::from_millis(20), begun);
    let fine = all.iter().find(|done| done.begun > begun && done.result.is_ok()).expect("it heals").begun;
    println!("decides again {:?} after the server does", fine.saturating_duration_since(back));
    assert!(fine.saturating_duration_since(back) < 5 * HEALS_WITHIN);
    drop(redis);
}

#[tokio::test]
async fn calls_do_not_wait_long_for_an_absent_server() {
    let redis = Redis::start();
    redis.signal("STOP");
    for url in [redis.url(), format!("redis+cluster://127.0.0.1:{}", redis.port())] {
        let settings = RedisSettings { timeout: TIMEOUT, ..settings(&url) };
        let store = open(&settings);
        let (begun, mut all) = (Instant::now(), Vec::new());
        // It is known once it was tried for some time.
        while begun.elapsed() < Duration::from_millis(400) || !all.last().is_some_and(Done::is_refused) {
            assert!(begun.elapsed() < HEAL_TIMEOUT, "calls wait: {:?}", all.last());
            let done = timed(&store, "a").await;
            assert!(done.result.as_ref().is_err_and(StoreError::charged_nothing));
            all.push(done);
        }
        assert_most(&all.iter().collect::<Vec<_>>(), |done| done.took < TIMEOUT + Duration::from_millis(50));
        keeps_to_async(TIMEOUT, "a call once it is known", async || timed(&store, "a").await.took).await;
    }
    // One that is there but refuses.
    let absent = RedisSettings { timeout: TIMEOUT, ..settings("redis://127.0.0.1:1") };
    let store = open(&absent);
    timed(&store, "a").await.result.expect_err("no server is there");
    for _ in 0..20 {
        let done = timed(&store, "a").await;
        assert!(matches!(done.result, Err(StoreError::Unreachable(_))), "{done:?}");
    }
}

#[tokio::test]
async fn a_stalled_shard_slows_no_call_to_the_others() {
    let cluster = Cluster::start(3, 0, &[], "");
    let store = brief(&cluster.url()).await;
    let name_on = |master: usize| name_on(&cluster, master, "name");
    let sick = Load::start(&store, [name_on(0)]);
    let fine = Load::start(&store, [name_on(1), name_on(2)]);
    sleep(Duration::from_millis(300)).await;
    cluster.stop(0);
    let stopped = Instant::now();
    sleep(Duration::from_millis(2_500)).await;
    let all = fine.end().await;
    let during: Vec<_> = all.iter().filter(|done| done.begun > stopped).collect();
    assert!(during.len() > 200, "{}", during.len());
    assert_most(&during, |done| done.result.is_ok() && done.took < REFUSAL_TIMEOUT);
    let all = sick.end().await;
    let opened = all.iter().find(|done| done.is_open()).expect("the breaker opens").begun;
    assert!(opened - stopped < OPENS_WITHIN, "{:?}", opened - stopped);
}
