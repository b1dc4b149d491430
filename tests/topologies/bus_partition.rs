//! Partitions between the nodes of a cluster, with a master and an instance on the minority's side.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::support::network::{Network, Party};
use crate::support::redis::hits;

const PREFIX: &str = "partition:";
/// The clients on either side.
const MINORITY: &str = "minority";
const MAJORITY: &str = "majority";
/// The first master, its replica, and the number of nodes.
const MASTER: usize = 0;
const REPLICA: usize = 3;
const NODES: usize = 6;
/// The limit of the instances, and how much of it is used before the partition.
const LIMIT: u64 = 100;
const USED: u64 = 60;

type CallResult = Result<(), StoreError>;

/// A cluster on a network of its own.
fn partitionable() -> (Cluster, Network) {
    let users = [MINORITY, MAJORITY].map(|user| ["--user", user, "on", ">word", "~*", "&*", "+@all"]);
    let arguments = [&["--cluster-require-full-coverage", "no"][..], &users.concat()].concat();
    let cluster = Cluster::start(3, 3, &arguments, "");
    let network = Network::before(&cluster, NODES, &[MINORITY, MAJORITY]);
    (0..NODES).for_each(|node| cluster.set(node, "cluster-node-timeout", "2000"));
    (cluster, network)
}

/// A store of clients on one side. The majority's has a short time-out, for its calls to the master are not answered.
async fn store(network: &Network, user: &str) -> RedisStore {
    let timeout = if user == MAJORITY { Duration::from_millis(300) } else { Duration::from_secs(5) };
    let settings =
        RedisSettings { timeout, key_prefix: PREFIX.into(), ..settings(&network.url(user, "word")) };
    let store = open(&settings);
    assert!(store.connected().await);
    store
}

/// The hits that a node has in a counter of the stores, whether it may decide or not.
fn counted(cluster: &Cluster, node: usize, name: &str) -> u64 {
    counted_in(cluster, node, &one(name, Hits::ONE).cells[0].key)
}

fn counted_in(cluster: &Cluster, node: usize, cell: &CellKey) -> u64 {
    let key = [PREFIX.as_bytes(), cell.as_bytes()].concat();
    let mut connection = cluster.node(node);
    cmd("READONLY").exec(&mut connection).expect("a reader");
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        match cmd("GET").arg(&key).query::<Option<Vec<u8>>>(&mut connection) {
            Ok(cell) => return cell.map_or(0, |cell| hits(&cell).into()),
            // A node on a busy machine may miss the others for a moment, or not have the new slots yet.
            Err(error) if error.code() == Some("CLUSTERDOWN") && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("node {node} does not read: {error}"),
        }
    }
}

/// Sends calls, one after the other.
async fn charges(store: &RedisStore, name: &str, count: usize) -> Vec<CallResult> {
    let call = one(name, Hits::ONE);
    let mut results = Vec::new();
    for _ in 0..count {
        results.push(charge(store, &call).await.map(drop));
    }
    results
}

/// The numbers of calls that were answered, and of those that may have been charged.
fn answered(results: &[CallResult]) -> (u64, u64) {
    let answered = results.iter().filter(|result| result.is_ok()).count() as u64;
    let unknown = results.iter().filter(|result| result.as_ref().is_err_and(|e| !e.charged_nothing()));
    (answered, answered + unknown.count() as u64)
}

/// Checks that what was answered is counted, and nothing twice.
fn assert_counts(what: &str, counted: u64, (answered, perhaps): (u64, u64)) {
    println!("{what}: {counted} counted of {answered} answered and at most {perhaps} charged");
    assert!((answered..=perhaps).contains(&counted), "{what}: {counted} of {answered} to {perhaps}");
}

fn is_down(cluster: &Cluster, node: usize) -> bool {
    let info: String = cmd("CLUSTER").arg("INFO").query(&mut cluster.node(node)).expect("a reply");
    info.contains("cluster_state:fail")
}

/// Requests of a caller.
#[derive(Debug, Default)]
struct Counts {
    passed: AtomicU64,
    denied: AtomicU64,
}

/// A caller of one instance, which sends one request after the other.
struct Caller {
    instance: Tollgate,
    client: Client,
    name: String,
}

impl Caller {
    async fn start(network: &Network, user: &str, name: &str) -> Self {
        let url = network.url(user, "word");
        let arguments = ["--store", &url, "--store-timeout", "100ms", "--replicas-hint", "2"];
        let others = ["--on-store-error", "local", "--key-prefix", PREFIX, "--workers", "1"];
        let instance = Tollgate::serving(&yearly(LIMIT as u32), &[&arguments[..], &others].concat());
        let client = instance.client().await;
        Self { instance, client, name: name.into() }
    }

    async fn passes(&mut self) -> bool {
        let answer = self.client.call(request("d", &[&[("k", &self.name)]])).await.expect("an answer");
        answer.overall_code() == Code::Ok
    }

    /// Sends requests until `stop`, and counts them.
    fn go_on(mut self, stop: &Arc<AtomicBool>, counts: &Arc<Counts>) -> JoinHandle<Self> {
        let (stop, counts) = (Arc::clone(stop), Arc::clone(counts));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let count = if self.passes().await { &counts.passed } else { &counts.denied };
                count.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(5)).await;
            }
            self
        })
    }

    /// The calls whose charge is unknown: each may have passed here without being counted there.
    fn unknown(&self) -> u64 {
        let metrics = self.instance.metrics();
        let of_reason = |reason: &str| {
            let name = format!("tollgate_degraded_total{{policy=\"local\",reason=\"{reason}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap_or(0)
        };
        ["timeout", "disconnected"].map(of_reason).iter().sum()
    }
}

/// The counter of a value of the rule.
fn cell_of(value: &str) -> CellKey {
    CellKey::open("d", [Entry { key: "k", value }].into_iter())
}

/// A value of the rule whose counter is with the first master.
fn value_on(cluster: &Cluster) -> String {
    let mut values = (0..).map(|number| format!("value{number}"));
    values.find(|value| cluster.master_of(cell_of(value).slot()) == MASTER).expect("endless")
}

#[tokio::test]
async fn a_partitioned_master_loses_its_own_charges_only_and_none_counts_twice() {
    let (cluster, network) = partitionable();
    let (minority, majority) = (store(&network, MINORITY).await, store(&network, MAJORITY).await);
    let [name, other] = ["met", "other"].map(|begin| name_on(&cluster, MASTER, begin));
    let before = 50;
    assert_eq!(answered(&charges(&minority, &name, 50).await), (before, before));
    until("a replica does not follow", async || counted(&cluster, REPLICA, &name) == before).await;

    network.cut_off(&[Party::Node(MASTER), Party::User(MINORITY)]);
    let (of_minority, of_majority) = (Requests::start(&minority, &name), Requests::start(&majority, &name));
    until("the master goes on alone", async || is_down(&cluster, MASTER)).await;
    let lost = answered(&of_minority.end().await);
    assert!(lost.0 > 0, "the master decided nothing after the cut");
    // By the election at the latest, it decides nothing; and what it declines is not charged.
    for may_read in ["no", "yes"] {
        cluster.set(MASTER, "cluster-allow-reads-when-down", may_read);
        let declined = charges(&minority, &name, 20).await;
        let is_declined = |result: &CallResult| result.as_ref().is_err_and(StoreError::charged_nothing);
        assert!(declined.iter().all(is_declined), "{declined:?}");
    }
    assert_counts("with the minority", counted(&cluster, MASTER, &name) - before, lost);

    until("the replica is not promoted", async || cluster.is_master(REPLICA)).await;
    recovered(&majority, &other, Instant::now()).await;
    let mut kept = of_majority.end().await;
    kept.extend(charges(&majority, &name, 20).await);
    assert_counts("with the majority", counted(&cluster, REPLICA, &name) - before, answered(&kept));

    network.heal();
    until("the former master does not follow", async || {
        cluster.info(MASTER, "replication").contains("master_link_status:up")
    })
    .await;
    for store in [&minority, &majority] {
        recovered(store, &other, Instant::now()).await;
        kept.extend(charges(store, &name, 20).await);
    }
    assert_counts("afterwards", counted(&cluster, REPLICA, &name) - before, answered(&kept));
    let follows = || counted(&cluster, MASTER, &name) == counted(&cluster, REPLICA, &name);
    until("the former master keeps its own charges", async || follows()).await;
}

#[tokio::test]
async fn each_side_of_a_partition_admits_at_most_what_remained() {
    let (cluster, network) = partitionable();
    let name = value_on(&cluster);
    let mut callers =
        [Caller::start(&network, MINORITY, &name).await, Caller::start(&network, MAJORITY, &name).await];
    for _ in 0..USED / 2 {
        for caller in &mut callers {
            assert!(caller.passes().await);
        }
    }
    let offset = |node: usize, field: &str| {
        let info = cluster.info(node, "replication");
        info.lines().find_map(|line| line.strip_prefix(field)?.parse::<u64>().ok()).expect("an offset")
    };
    let sent = offset(MASTER, "master_repl_offset:");
    until("a replica does not follow", async || offset(REPLICA, "slave_repl_offset:") >= sent).await;

    network.cut_off(&[Party::Node(MASTER), Party::User(MINORITY)]);
    let stop = Arc::<AtomicBool>::default();
    let counts = [(); 2].map(|()| Arc::<Counts>::default());
    let mut ended = Vec::new();
    for (caller, counts) in callers.into_iter().zip(&counts) {
        ended.push(caller.go_on(&stop, counts));
    }
    until("the master goes on alone", async || is_down(&cluster, MASTER)).await;
    until("the replica is not promoted", async || cluster.is_master(REPLICA)).await;
    // Both sides meet a limit: the minority's instance that of its master, the other that of the new one.
    let denied = |side: usize| counts[side].denied.load(Ordering::Relaxed);
    let before = [denied(0), denied(1)];
    until("the limit is not met", async || (0..2).all(|side| denied(side) > before[side] + 50)).await;
    // The majority's instance first denies by its share of what remained, while it does not reach the new master.
    let is_used_up = || counted_in(&cluster, REPLICA, &cell_of(&name)) >= LIMIT;
    until("the limit is not used up at the new master", async || is_used_up()).await;
    network.heal();
    until("the former master does not follow", async || {
        cluster.info(MASTER, "replication").contains("master_link_status:up")
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for (side, caller) in ended.into_iter().enumerate() {
        let mut caller = caller.await.expect("no panic");
        let unknown = caller.unknown();
        let passed = counts[side].passed.load(Ordering::Relaxed);
        println!("side {side}: {passed} passed after the cut, {unknown} unknown");
        assert!((1..=LIMIT - USED + unknown).contains(&passed), "{passed} passed, {unknown} unknown");
        assert!(!caller.passes().await, "the limit is not met after the partition");
    }
}
