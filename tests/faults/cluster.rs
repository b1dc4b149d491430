//! Faults of a cluster of three masters and three replicas.

use tollgate::store::key::CellKey;

use super::{
    harness::{Harness, Profile, Times},
    samples::{Losses, Samples, compare, millis},
    table::ReportRow,
    *,
};

/// After which Redis calls a node lost. The shortest that a busy machine bears.
const NODE_TIMEOUT: &str = "2000";

/// A cluster whose shards go on without each other.
pub(super) fn start() -> Cluster {
    let cluster = Cluster::start(3, 3, &["--cluster-require-full-coverage", "no"], "");
    (0..6).for_each(|node| cluster.set(node, "cluster-node-timeout", NODE_TIMEOUT));
    cluster
}

pub(super) fn slot(name: &str) -> u16 {
    CellKey::open("d", [Entry { key: "k", value: name }].into_iter()).slot()
}

/// Names that begin so, whose counters are with the first, second and third master in turn.
pub(super) fn names(cluster: &Cluster, begin: &str, count: usize) -> Vec<String> {
    let mut numbers = 0..;
    let mut next = |master: usize| {
        let mut candidates = numbers.by_ref().map(|number| format!("{begin}{number}"));
        candidates.find(|name| cluster.master_of(slot(name)) == master).expect("endless")
    };
    (0..count).map(|number| next(number % 3)).collect()
}

/// Samples of one master, or of the other two.
fn of_first(samples: &Samples) -> Samples {
    samples.such(|sample| sample.key % 3 == 0)
}

fn of_others(samples: &Samples) -> Samples {
    samples.such(|sample| sample.key % 3 != 0)
}

/// Effects on the healthy shards.
fn judge_others(row: &mut ReportRow, samples: &Samples, times: Times) {
    let others = of_others(samples);
    let before = others.between(Duration::ZERO, times.fault).p99();
    let during = others.between(times.fault, times.healed);
    let measured = format!("{} before, {} during", millis(before), millis(during.p99()));
    row.timed("other shards' p99 <= 1.5 x", measured, during.p99() <= before.mul_f64(1.5));
    row.timed("their calls by policy 0", during.degraded(), during.degraded() == 0);
}

fn judge_shard(row: &mut ReportRow, samples: &Samples, times: Times) {
    let during = of_first(samples).between(times.fault, times.healed);
    let degraded = during.degraded();
    row.must("the shard's calls decided by policy", format!("{degraded} of {}", during.len()), degraded > 0);
}

/// A master is killed, and its replica takes over.
pub(super) fn master_dies(profile: &Profile, cluster: &mut Cluster) -> ReportRow {
    let names = names(cluster, "dies", 60);
    let harness = Harness::start(&cluster.url(), profile, &names);
    harness.calm(profile, profile.before);
    let fault = harness.load.now();
    cluster.kill(0);
    wait("the replica is not promoted", || cluster.is_master(3));
    let times = harness.healed(profile, fault);
    let samples = harness.end();
    let mut row = ReportRow::new("cluster: a master is killed (SIGKILL), its replica takes over", profile);
    row.no_errors(&samples);
    judge_shard(&mut row, &samples, times);
    judge_others(&mut row, &samples, times);
    row.normal_within(&samples, times, Duration::from_secs(5), "the promotion");
    row.note(format!("promoted after {}", millis(times.healed - times.fault)));
    compare(&mut row, &samples, &names, Losses::WithTheMaster, |name| {
        let master = cluster.master_of(slot(name));
        cluster.node(if master == 0 { 3 } else { master })
    });
    row
}

/// Nothing passes to one master and back, while the nodes see each other.
pub(super) fn shard_is_cut_off(profile: &Profile, cluster: &mut Cluster) -> ReportRow {
    let names = names(cluster, "cut", 60);
    let proxy = Proxy::to(cluster.port(0));
    let is_announced = |port: u16| {
        (0..6).all(|node| {
            let slots = cmd("CLUSTER").arg("SLOTS").query::<redis::Value>(&mut cluster.node(node));
            format!("{slots:?}").contains(&format!("int({port})"))
        })
    };
    cluster.announce(0, proxy.port());
    wait("the port does not get about", || is_announced(proxy.port()));
    let harness = Harness::start(&cluster.url(), profile, &names);
    let times = harness.during(profile, || proxy.set_both(Way::Silent), || proxy.set_both(Way::Open));
    let samples = harness.end();
    let mut row = ReportRow::new("cluster: one shard is partitioned from tollgate", profile);
    row.no_errors(&samples);
    judge_shard(&mut row, &samples, times);
    judge_others(&mut row, &samples, times);
    row.normal_within(&samples, times, Duration::from_secs(1), "the partition");
    compare(&mut row, &samples, &names, Losses::Never, |name| cluster.node(cluster.master_of(slot(name))));
    cluster.announce(0, 0);
    wait("the port does not get about", || is_announced(cluster.port(0)));
    row
}

/// A replica is promoted by order, and demoted again.
pub(super) fn replica_takes_over(profile: &Profile, cluster: &mut Cluster) -> ReportRow {
    let names = names(cluster, "over", 60);
    let harness = Harness::start(&cluster.url(), profile, &names);
    harness.calm(profile, profile.before);
    let (fault, begun) = (harness.load.now(), Instant::now());
    let mut takeovers = 0;
    while takeovers == 0 || begun.elapsed() < profile.fault {
        for node in [3, 0] {
            take_over(cluster, node);
            takeovers += 1;
        }
    }
    let times = harness.healed(profile, fault);
    let samples = harness.end();
    let mut row = ReportRow::new("cluster: CLUSTER FAILOVER, back and forth", profile);
    row.no_errors(&samples);
    row.normal_within(&samples, times, Duration::from_secs(5), "the last");
    compare(&mut row, &samples, &names, Losses::Never, |name| cluster.node(cluster.master_of(slot(name))));
    let during = samples.between(times.fault, times.healed);
    row.note(format!("{takeovers} failovers, {} of {} by policy", during.degraded(), during.len()));
    row
}

/// Has a replica take over, as often as it takes.
fn take_over(cluster: &Cluster, node: usize) {
    let mut again = Instant::now();
    wait("the replica does not take over", || {
        if Instant::now() >= again {
            cluster.fail_over(node);
            again = Instant::now() + Duration::from_secs(6);
        }
        cluster.is_master(node)
    });
    let other = if node == 0 { 3 } else { 0 };
    wait("the former master does not follow", || {
        cluster.info(other, "replication").contains("master_link_status:up")
    });
}

/// Slots move between masters, with their counters.
pub(super) fn slots_move(profile: &Profile, cluster: &mut Cluster) -> ReportRow {
    let names = names(cluster, "move", 60);
    let mut slots: Vec<u16> = names.iter().step_by(3).map(|name| slot(name)).collect();
    slots.sort_unstable();
    slots.dedup();
    let harness = Harness::start(&cluster.url(), profile, &names);
    harness.calm(profile, profile.before);
    let (fault, begun) = (harness.load.now(), Instant::now());
    let mut moves = 0;
    while moves == 0 || begun.elapsed() < profile.fault {
        for (from, to) in [(0, 1), (1, 0)] {
            for slot in &slots {
                cluster.begin_move(*slot, from, to);
                thread::sleep(Duration::from_millis(2));
                cluster.end_move(*slot, from, to);
                moves += 1;
            }
        }
    }
    let times = harness.healed(profile, fault);
    let samples = harness.end();
    let mut row = ReportRow::new("cluster: slots move under load", profile);
    row.no_errors(&samples);
    row.normal_within(&samples, times, Duration::from_secs(1), "the last");
    compare(&mut row, &samples, &names, Losses::Never, |name| cluster.node(cluster.master_of(slot(name))));
    let during = samples.between(times.fault, times.healed);
    row.note(format!("{moves} moves, {} of {} by policy", during.degraded(), during.len()));
    row
}

/// On one cluster, which the last one leaves with a node less.
#[test]
fn failing_cluster_nodes_cause_no_error_and_no_double_charge() {
    let mut cluster = start();
    for scenario in [shard_is_cut_off, replica_takes_over, slots_move, master_dies] {
        scenario(&Profile::SHORT, &mut cluster).judge();
    }
}
