//! Faults at random, one after the other and two at a time, on a cluster with a proxy before every node.

use tollgate::clock::Clock;

use super::cluster::{cluster_names, start};
use super::samples::{Admissions, admissions};
use super::*;

const NODES: usize = 6;

const RULES: &str =
    "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: second, requests_per_unit: 20}\n";

/// The maximum recovery time after the cluster has healed, as in the table.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Silent,
    Killed,
    Black,
    Silenced(Direction),
    Slow,
    CutInAnswers,
    Cut,
    Flushed,
    Paused,
    Full,
    TakesOver,
}

const FAULTS: [Fault; 12] = [
    Fault::Silent,
    Fault::Killed,
    Fault::Black,
    Fault::Silenced(Direction::ToServer),
    Fault::Silenced(Direction::ToClient),
    Fault::Slow,
    Fault::CutInAnswers,
    Fault::Cut,
    Fault::Flushed,
    Fault::Paused,
    Fault::Full,
    Fault::TakesOver,
];

/// The cluster and the way to it.
struct Scene {
    cluster: Cluster,
    proxies: Vec<Proxy>,
}

impl Scene {
    fn start() -> Self {
        let cluster = start();
        let proxies: Vec<Proxy> = (0..NODES).map(|node| Proxy::to(cluster.port(node))).collect();
        let scene = Self { cluster, proxies };
        (0..NODES).for_each(|node| scene.announce(node));
        scene.wait_until_well();
        scene
    }

    fn announce(&self, node: usize) {
        self.cluster.announce(node, self.proxies[node].port());
    }

    /// Has a fault come over a node. It may take its time over that.
    fn begin(&mut self, fault: Fault, node: usize, length: Duration) {
        let proxy = &self.proxies[node];
        let pause = i64::try_from(length.as_millis()).expect("not that long");
        let node_itself = || self.cluster.node(node);
        match fault {
            Fault::Silent => self.cluster.stop(node),
            Fault::Killed => {
                self.cluster.restart_after(node, length);
                self.announce(node);
            }
            Fault::Black => proxy.set_both(Way::Silent),
            Fault::Silenced(direction) => proxy.set(direction, Way::Silent),
            Fault::Slow => proxy.set(Direction::ToClient, Way::Slow(length / 100)),
            Fault::CutInAnswers => proxy.set(Direction::ToClient, Way::CutAfter(11)),
            Fault::Cut => proxy.cut(),
            Fault::Flushed => cmd("SCRIPT").arg("FLUSH").exec(&mut node_itself()).expect("flushed"),
            Fault::Paused => {
                cmd("CLIENT").arg("PAUSE").arg(pause).exec(&mut node_itself()).expect("paused");
            }
            Fault::Full => self.cluster.set(node, "maxmemory", "1"),
            Fault::TakesOver => self.cluster.fail_over(node),
        }
    }

    fn end(&self, fault: Fault, node: usize) {
        match fault {
            Fault::Silent => self.cluster.go_on(node),
            Fault::Full => self.cluster.set(node, "maxmemory", "0"),
            _ => self.proxies[node].set_both(Way::Open),
        }
    }

    /// Waits until all slots have a master, and all masters a replica that follows.
    fn wait_until_well(&self) {
        wait("the cluster does not heal", || {
            let node_state = |node: usize| {
                let state: String =
                    cmd("CLUSTER").arg("INFO").query(&mut self.cluster.node(node)).unwrap_or_default();
                (state, self.cluster.info(node, "replication"))
            };
            (0..NODES).map(node_state).all(|(state, replication)| {
                let is_linked =
                    replication.contains("role:master") || replication.contains("master_link_status:up");
                is_linked && state.contains("cluster_state:ok") && state.contains("cluster_slots_ok:16384")
            })
        });
    }
}

/// Statistics of a period with faults.
#[derive(Debug, Default)]
struct Course {
    faults: usize,
    /// The times that they touched.
    touched: Vec<Range<Duration>>,
    /// Bytes that tollgate had resident after each.
    memory: Vec<u64>,
}

/// Faults for so long.
fn disturb(scene: &mut Scene, harness: &Harness, random: &mut Rng, time: Duration) -> Course {
    let (begun, mut course) = (Instant::now(), Course::default());
    let mut unwell_since = None;
    while begun.elapsed() < time {
        let length = Duration::from_millis(random.u64(200..4_000)).min(time / 4);
        let faults = draw(random);
        println!("{} {faults:?} for {}", millis(harness.load.now()), millis(length));
        let since = *unwell_since.get_or_insert(harness.load.now());
        for (fault, node) in &faults {
            scene.begin(*fault, *node, length);
        }
        thread::sleep(length);
        for (fault, node) in &faults {
            scene.end(*fault, *node);
        }
        course.faults += faults.len();
        // Else the next one comes over what this one left.
        if random.bool() {
            scene.wait_until_well();
            course.touched.push(since..harness.load.now() + GRACE);
            unwell_since = None;
            thread::sleep((GRACE + Duration::from_secs(4)).min(time / 4));
        }
        course.memory.push(harness.tollgate.resident());
    }
    course.touched.extend(unwell_since.map(|since| since..Duration::MAX));
    course
}

/// One fault or two, on different nodes; what takes its time to begin comes last.
fn draw(random: &mut Rng) -> Vec<(Fault, usize)> {
    let (first, other) = (random.usize(..NODES), random.usize(1..NODES));
    let nodes = [first, (first + other) % NODES];
    let count = random.usize(1..=2);
    let mut faults: Vec<_> =
        nodes[..count].iter().map(|node| (FAULTS[random.usize(..FAULTS.len())], *node)).collect();
    faults.sort_by_key(|(fault, _)| matches!(fault, Fault::Killed));
    faults
}

/// Whether the second half of the time needed more than the first.
fn judge_memory(row: &mut ReportRow, memory: &[u64]) {
    let (first, second) = memory.split_at(memory.len() / 2);
    let most = |half: &[u64]| half.iter().copied().max().unwrap_or_default();
    let (first, second) = (most(first), most(second));
    let measured = format!("at most {} MB in the first half, {} MB in the second", first >> 20, second >> 20);
    row.timed("RSS flat (10 %)", measured, second <= first + first / 10);
}

pub(super) fn everything(profile: &Profile) -> ReportRow {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("FAULTS_SEED").unwrap_or(20_260);
    let full = Duration::from_secs(60 * number("FAULTS_MINUTES").unwrap_or(10));
    let time = if profile.is_timed() { full } else { profile.fault * 6 };
    println!("FAULTS_SEED={seed}");
    let mut scene = Scene::start();
    let names = cluster_names(&scene.cluster, "any", 60);
    let harness = Harness::with_rules(RULES, &scene.cluster.url(), profile, &names);
    let began = Duration::from_micros(Clock::System.now().as_micros()) - harness.load.now();
    harness.calm(profile, profile.before);
    let first = harness.load.now();
    let course = disturb(&mut scene, &harness, &mut Rng::with_seed(seed), time);
    scene.wait_until_well();
    let healed = harness.load.now();
    harness.calm(profile, profile.after);
    let samples = harness.end();
    let mut row = ReportRow::new(format!("random faults for {}, seed {seed}", millis(time)), profile);
    row.no_errors(&samples);
    let Admissions { whole, beyond, mixed } = admissions(&samples, began, &course.touched);
    let details = format!("{beyond} hits in {whole} windows; {mixed} not by Redis alone");
    row.must("over-admission outside of faults 0", details, beyond == 0);
    row.timed("there are windows to judge", whole, whole > 1_000);
    judge_memory(&mut row, &course.memory);
    row.normal_within(&samples, Times { fault: first, healed }, GRACE, "the last");
    row.note(format!("{} faults, {} of {} by policy", course.faults, samples.degraded(), samples.len()));
    row
}

#[test]
fn random_faults_cause_no_error_and_limits_hold_afterwards() {
    everything(&Profile::SHORT).judge();
}
