//! Propagation of changes to many instances that reconcile with one store.

use std::thread::{self, JoinHandle};
use std::{collections::HashMap, sync::mpsc};

use tokio::{join, runtime};
use tokio_util::sync::CancellationToken;
use tollgate::control::{Rules, RulesState};

use super::*;

/// A bound on failures only: a busy machine takes a while for many followers.
const DEADLINE: Duration = Duration::from_secs(60);
/// Threads that the followers share.
const THREADS: usize = 4;
/// Rules of the measurement. All followers compile them in one process.
const MANY_RULES: usize = 100;

/// One instance's part that reconciles with the store, without its ports.
struct Follower {
    status: RulesStatus,
    rules: Arc<ActiveRules>,
    _reconciler: Reconciler,
    _control: Control,
}

impl Follower {
    /// Starts on the present runtime.
    fn start(url: &str, directory: &TempDir) -> Self {
        let (status, rules) = (RulesStatus::default(), Arc::<ActiveRules>::default());
        let (activated, active) = (status.clone(), Arc::clone(&rules));
        let control = redis_control(url, "");
        let source = Rules {
            directory: directory.path().to_owned(),
            options: Options::default(),
            last: None,
            activate: Arc::new(move |loaded, version, _| {
                if let Ok(loaded) = loaded {
                    active.replace(Arc::new(loaded.rules));
                    activated.update(|state| state.version = Some(version.number));
                }
            }),
        };
        let reconciler = Reconciler::start(&control, status.clone(), rules.clone(), Some(source), Vec::new);
        Self { status, rules, _reconciler: reconciler, _control: control }
    }
}

/// Followers of one store, on threads of their own.
struct Followers {
    statuses: Vec<RulesStatus>,
    rules: Vec<Arc<ActiveRules>>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Followers {
    fn start(count: usize, url: &str) -> Self {
        let stop = CancellationToken::new();
        let (sender, started) = mpsc::channel();
        let start = |thread: usize| {
            let (stop, sender, url) = (stop.clone(), sender.clone(), url.to_owned());
            let count = count / THREADS + usize::from(thread < count % THREADS);
            thread::spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let directory = tempfile::tempdir().expect("a directory");
                    let followers: Vec<_> = (0..count).map(|_| Follower::start(&url, &directory)).collect();
                    for Follower { status, rules, .. } in &followers {
                        sender.send((status.clone(), Arc::clone(rules))).expect("the test waits");
                    }
                    stop.cancelled().await;
                });
            })
        };
        let threads = (0..THREADS).map(start).collect();
        let (statuses, rules) = started.iter().take(count).unzip();
        Self { statuses, rules, stop, threads }
    }

    /// Waits until something holds for all followers.
    async fn all(&self, what: &str, holds: impl Fn(&RulesState) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while let left @ 1.. = self.statuses.iter().filter(|status| !holds(&status.now())).count() {
            assert!(Instant::now() < deadline, "{what}: not at {left} followers");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        self.stop.cancel();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The calls of each command since the last reset.
fn calls(redis: &Redis) -> HashMap<String, u64> {
    let info: String = cmd("INFO").arg("commandstats").query(&mut redis.connect()).expect("a reply");
    let read = |line: &str| {
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), figures.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(read).collect()
}

fn reset_calls(redis: &Redis) {
    cmd("CONFIG").arg("RESETSTAT").exec(&mut redis.connect()).expect("reset");
}

/// Rules of one domain, whose limit shows their version.
fn many_rules(version: u32) -> String {
    let rule = |number: usize| {
        format!(
            "- {{key: path, value: /v1/{number}, rate_limit: {{unit: hour, requests_per_unit: {version}}}}}\n"
        )
    };
    let rules: String = (0..MANY_RULES).map(rule).collect();
    format!("domain: web\ndescriptors:\n{rules}")
}

#[tokio::test]
async fn twenty_followers_activate_every_version_and_list_in_order() {
    let redis = Redis::start();
    let control = redis_control(&redis.url(), "");
    control.apply(draft(None, &limit(1))).await.expect("made");
    let followers = Followers::start(20, &redis.url());
    followers.all("the first version", |state| state.version == Some(1)).await;
    for number in 1..=5 {
        control.apply(draft(Some(number), &limit(10))).await.expect("made");
        put_entry(&control, ban(&format!("value{number}"))).await.expect("put");
        let revision = head_in(&control).await.revision;
        followers
            .all("a version and a list", |state| {
                // A newer one cannot be active before it is made.
                assert!(state.version <= Some(number + 1) && state.generation <= revision);
                state.version == Some(number + 1) && state.generation == revision
            })
            .await;
    }
    assert!(followers.statuses.iter().all(|status| status.now().problems().is_none()));
    assert!(followers.rules.iter().all(|rules| rules.load().is_some()));

    // A change costs each follower a few commands, however many there are.
    sleep(Duration::from_millis(300)).await;
    reset_calls(&redis);
    control.apply(draft(Some(6), &limit(11))).await.expect("made");
    followers.all("another version", |state| state.version == Some(7)).await;
    let calls = calls(&redis);
    let read = calls.get("hmget").copied().unwrap_or(0);
    assert!(calls.get("evalsha") <= Some(&(20 * 8)) && read <= 20 * 12, "{calls:?}");
}

/// Times of changes until they are active at 200 followers, and their load on Redis.
///
/// `cargo test --release --test integration -- --ignored --nocapture two_hundred_followers`
#[tokio::test]
#[ignore = "a measurement, which takes a minute"]
async fn two_hundred_followers_activate_a_change_within_five_seconds() {
    for count in [20, 200] {
        let redis = Redis::start();
        let control = redis_control(&redis.url(), "");
        control.apply(draft(None, &many_rules(1))).await.expect("made");
        let followers = Followers::start(count, &redis.url());
        followers.all("the first version", |state| state.version == Some(1)).await;
        sleep(Duration::from_secs(2)).await;
        let (mut versions, mut lists) = (Vec::new(), Vec::new());
        for number in 1..=10 {
            let text = many_rules(2 + u32::try_from(number).expect("small"));
            control.apply(draft(Some(number), &text)).await.expect("made");
            let begun = Instant::now();
            followers.all("a version", |state| state.version == Some(number + 1)).await;
            versions.push(begun.elapsed());
            let before = head_in(&control).await.revision;
            let begun = Instant::now();
            let active = async {
                followers.all("a list", |state| state.generation > before).await;
                begun.elapsed()
            };
            // No instance of its own, it waits for a second.
            let (put, took) = join!(put_entry(&control, ban(&format!("value{number}"))), active);
            put.expect("put");
            lists.push(took);
        }
        report(&redis, count, &mut versions, &mut lists).await;
    }
}

/// Prints the times, and the load of followers without changes.
async fn report(redis: &Redis, count: usize, versions: &mut [Duration], lists: &mut [Duration]) {
    const IDLE: Duration = Duration::from_secs(10);
    versions.sort();
    lists.sort();
    reset_calls(redis);
    let before = redis.processor_time();
    sleep(IDLE).await;
    let busy = redis.processor_time().checked_sub(before).expect("it grows");
    let calls = calls(redis);
    let each = |name: &str| {
        let calls = calls.get(name).copied().unwrap_or(0);
        calls as f64 / IDLE.as_secs_f64() / count as f64
    };
    println!(
        "{count} followers: a version of {} kB active at all within {:?} (median {:?}), a list within {:?} \
         (median {:?}); idle, each sends {:.2} scripts and {:.2} pings a second, and Redis is busy for {:.2} %",
        many_rules(1).len() / 1024,
        versions.last().expect("some"),
        versions[versions.len() / 2],
        lists.last().expect("some"),
        lists[lists.len() / 2],
        each("evalsha"),
        each("ping"),
        100.0 * busy.as_secs_f64() / IDLE.as_secs_f64(),
    );
    for (name, bound, times) in [("a version", 5, versions), ("a list", 5, lists)] {
        assert!(times.last() < Some(&Duration::from_secs(bound)), "{name}: {times:?}");
    }
}
