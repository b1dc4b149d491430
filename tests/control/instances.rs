//! Several instances that follow one store.

use tollgate::control::Instance;

use super::*;
use crate::support::redis::{RULES_COMMANDS, guarded};
use crate::support::{cluster, timing::keeps_to_async};

/// The maximum time until a change takes effect.
const MAX_PROPAGATION: Duration = Duration::from_secs(2);

/// Three instances on the cluster that tests share, each with a client.
struct Fleet {
    _instances: Vec<Tollgate>,
    clients: Vec<Client>,
    control: Control,
}

async fn fleet(cluster: &Cluster, prefix: &str) -> Fleet {
    let directory = rules(&limit(1));
    let arguments =
        ["--store", &cluster.url(), "--rules", "redis", "--key-prefix", prefix, "--log-level", "warn"];
    // Together, so that all of them may find nothing and bring the first version.
    let instances: Vec<_> = (0..3).map(|_| Tollgate::spawn(directory.path(), &arguments)).collect();
    let mut clients = Vec::new();
    for instance in &instances {
        instance.wait_until_ready();
        clients.push(instance.client().await);
    }
    let control = redis_control(&cluster.url(), prefix);
    assert_eq!(control.current().await, Ok(Some(1)), "many made a first version");
    for client in &mut clients {
        assert_eq!(limit_of(client).await, Some(1));
    }
    Fleet { _instances: instances, clients, control }
}

impl Fleet {
    /// Makes changes, with a rollback after each, and gives the time that each took until all enforced it.
    async fn change(&mut self, rounds: u32) -> Vec<Duration> {
        let mut times = Vec::new();
        let first = self.control.current().await.expect("a reply").expect("there is one");
        let mut current = first;
        for round in 1..=rounds {
            let limits = [(1_000 + round, None), (1, Some(1))];
            for (expected, rollback_to) in limits {
                let draft = Draft { rollback_to, ..draft(Some(current), &limit(expected)) };
                current = self.control.apply(draft).await.expect("made").number;
                let begun = Instant::now();
                times.push(all_enforced(&mut self.clients, expected, begun).await);
            }
        }
        times
    }
}

#[tokio::test]
async fn a_change_and_a_rollback_are_enforced_by_all_instances_soon() {
    let mut fleet = fleet(cluster::shared(), "fleet:").await;
    let times = fleet.change(10).await;
    eprintln!("slowest: {:?}", times.iter().max());
    mostly_keep_to(MAX_PROPAGATION, "a change", &times);
    // Instances report it with their next heartbeat.
    let is_reported = |reported: &Instance| reported.problem.is_none() && reported.version == Some(21);
    read_until(
        async || fleet.control.instances().await.expect("a reply"),
        |instances| instances.len() == 3 && instances.iter().all(is_reported),
    )
    .await;
}

#[tokio::test]
async fn changes_are_enforced_by_polling_without_notifications() {
    // A proxy of its own: other instances still receive notifications.
    let cluster = Arc::new(Cluster::start(3, 0, &[], ""));
    let mut fleet = fleet(&cluster, "deaf:").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let killer = thread::spawn(move || {
        let mut killed = 0_u32;
        let mut nodes: Vec<_> = (0..3).map(|node| cluster.node(node)).collect();
        while !stop.load(Ordering::Relaxed) {
            for node in &mut nodes {
                killed += cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).query::<u32>(node).expect("done");
            }
            thread::sleep(Duration::from_millis(3));
        }
        killed
    });
    let mut times = Vec::new();
    for _ in 0..5 {
        // After a change, the next poll comes sooner than usual.
        sleep(Duration::from_millis(300)).await;
        times.extend(fleet.change(1).await);
    }
    is_over.store(true, Ordering::Relaxed);
    let killed = killer.join().expect("no panic");
    eprintln!("slowest: {:?}, {killed} killed", times.iter().max());
    // Each instance lost its subscription more than once.
    assert!(killed > 5, "{killed}");
    mostly_keep_to(MAX_PROPAGATION, "a change", &times);
}

#[tokio::test]
async fn a_bad_version_is_not_activated_and_every_instance_reports_why() {
    let mut fleet = fleet(cluster::shared(), "bad:").await;
    let (mut good, mut in_force) = (1, 1);
    keeps_to_async(MAX_PROPAGATION, "the change after a bad one", async || {
        let bad = fleet.control.apply(draft(Some(good), "domain: [")).await.expect("made").number;
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let instances = fleet.control.instances().await.expect("a reply");
            let what = format!("version {bad}");
            let reported = |problem: &String| problem.contains(&what) && problem.contains("rules.yaml");
            if instances.iter().all(|instance| instance.problem.as_ref().is_some_and(reported)) {
                let stays = |instance: &Instance| instance.version == Some(good);
                assert!(instances.len() == 3 && instances.iter().all(stays), "{instances:?}");
                break;
            }
            assert!(Instant::now() < deadline, "{instances:?}");
            sleep(Duration::from_millis(20)).await;
        }
        for client in &mut fleet.clients {
            assert_eq!(limit_of(client).await, Some(in_force));
        }
        in_force += 6;
        good = fleet.control.apply(draft(Some(bad), &limit(in_force))).await.expect("made").number;
        all_enforced(&mut fleet.clients, in_force, Instant::now()).await
    })
    .await;
}

#[tokio::test]
async fn without_permission_to_publish_or_subscribe_polling_is_fast_enough() {
    let redis = Redis::start_with(&guarded("word", &RULES_COMMANDS));
    let url = format!("redis://app:word@127.0.0.1:{}", redis.port());
    let arguments = ["--store", &url, "--rules", "redis", "--key-prefix", "guarded:", "--log-level", "warn"];
    let tollgate = Tollgate::serving(&limit(1), &arguments);
    let control = reconciled(redis_control(&url, "guarded:"));
    let mut fleet = Fleet { clients: vec![tollgate.client().await], _instances: vec![tollgate], control };
    keeps_to_async(MAX_PROPAGATION, "a change", async || {
        // After a change, the next poll comes sooner than usual.
        sleep(Duration::from_millis(300)).await;
        fleet.change(1).await.into_iter().max().expect("some")
    })
    .await;
    let channels: Vec<String> = cmd("PUBSUB").arg("CHANNELS").query(&mut redis.connect()).expect("a reply");
    assert_eq!(channels, [""; 0], "it is not polled for");
    let entry = |value: &str| denied("web", "k", value);
    let short = ListEntry { expires_at_ms: Some(now_ms() + 1), ..entry("a") };
    put_entry(&fleet.control, short).await.expect("put");
    put_entry(&fleet.control, entry("b")).await.expect("put");
    assert!(remove(&fleet.control, Record::ListEntry(entry("b")), "ada").await.expect("removed"));
    assert_eq!(fleet.control.audit(None, 3).await.expect("a reply").len(), 3);
}
