//! Faults of a cluster of three masters and three replicas.

use tollgate::store::key::CellKey;

use super::samples::{Losses, compare};
use super::*;

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
pub(super) fn cluster_names(cluster: &Cluster, begin: &str, count: usize) -> Vec<String> {
    let mut numbers = 0..;
    let mut next = |master: usize| {
        let mut candidates = numbers.by_ref().map(|number| format!("{begin}{number}"));
        candidates.find(|name| cluster.master_of(slot(name)) == master).expect("endless")
    };
    (0..count).map(|number| next(number % 3)).collect()
}

/// Effects on the shard of the first master, and on the healthy ones.
fn judge_shards(found: &mut Findings) {
    let Findings { row, samples, times } = found;
    let first = samples.such(|sample| sample.key % 3 == 0);
    let others = samples.such(|sample| sample.key % 3 != 0);
    row.some_by_policy("the shard's calls decided by policy", &first.between(times.fault, times.healed));
    let before = others.between(Duration::ZERO, times.fault).p99();
    let during = others.between(times.fault, times.healed);
    let measured = format!("{} before, {} during", millis(before), millis(during.p99()));
    row.timed("other shards' p99 <= 1.5 x", measured, during.p99() <= before.mul_f64(1.5));
    row.timed("their calls by policy 0", during.degraded(), during.degraded() == 0);
}

/// Judges the charges of a cluster whose masters are those that it had at first.
fn judge_charges(found: &mut Findings, names: &[String], cluster: &Cluster) {
    let holder = |name: &str| cluster.node(cluster.master_of(slot(name)));
    compare(&mut found.row, &found.samples, names, Losses::Never, holder);
}

/// A master is killed, and its replica takes over.
pub(super) fn master_dies(profile: &Profile, cluster: &mut Cluster) -> ReportRow {
    let names = cluster_names(cluster, "dies", 60);
    let fault = "cluster: a master is killed (SIGKILL), its replica takes over";
    let mut found = Findings::of(fault, profile, &cluster.url(), &names, || {
        cluster.kill(0);
        wait("the replica is not promoted", || cluster.is_master(3));
    });
    judge_shards(&mut found);
    found.normal_within(Duration::from_secs(5), "the promotion");
    let Findings { mut row, samples, times } = found;
    row.note(format!("promoted after {}", millis(times.healed - times.fault)));
    compare(&mut row, &samples, &names, Losses::WithTheMaster, |name| {
        let master = cluster.master_of(slot(name));
        cluster.node(if master == 0 { 3 } else { master })
    });
    row
}

/// Nothing passes to one master and back, while the nodes see each other.
pub(super) fn shard_is_cut_off(profile: &Profile, cluster: &mut Cluster) -> ReportRow {
    let names = cluster_names(cluster, "cut", 60);
    let proxy = Proxy::to(cluster.port(0));
    let is_announced = |port: u16| {
        (0..6).all(|node| {
            let slots = cmd("CLUSTER").arg("SLOTS").query::<redis::Value>(&mut cluster.node(node));
            format!("{slots:?}").contains(&format!("int({port})"))
        })
    };
    cluster.announce(0, proxy.port());
    wait("the port does not get about", || is_announced(proxy.port()));
    let fault = "cluster: one shard is partitioned from tollgate";
    let mut found = Findings::of(fault, profile, &cluster.url(), &names, || {
        proxy.set_both(Way::Silent);
        thread::sleep(profile.fault);
        proxy.set_both(Way::Open);
    });
    judge_shards(&mut found);
    found.normal_within(Duration::from_secs(1), "the partition");
    judge_charges(&mut found, &names, cluster);
    cluster.announce(0, 0);
    wait("the port does not get about", || is_announced(cluster.port(0)));
    found.row
}

/// A replica is promoted by order, and demoted again.
pub(super) fn replica_takes_over(profile: &Profile, cluster: &mut Cluster) -> ReportRow {
    let names = cluster_names(cluster, "over", 60);
    let mut takeovers = 0;
    let mut found =
        Findings::of("cluster: CLUSTER FAILOVER, back and forth", profile, &cluster.url(), &names, || {
            let begun = Instant::now();
            while takeovers == 0 || begun.elapsed() < profile.fault {
                for node in [3, 0] {
                    take_over(cluster, node);
                    takeovers += 1;
                }
            }
        });
    found.normal_within(Duration::from_secs(5), "the last");
    judge_charges(&mut found, &names, cluster);
    let during = found.during();
    found.row.note(format!("{takeovers} failovers, {} of {} by policy", during.degraded(), during.len()));
    found.row
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
    let names = cluster_names(cluster, "move", 60);
    let mut slots: Vec<u16> = names.iter().step_by(3).map(|name| slot(name)).collect();
    slots.sort_unstable();
    slots.dedup();
    let mut moves = 0;
    let mut found = Findings::of("cluster: slots move under load", profile, &cluster.url(), &names, || {
        let begun = Instant::now();
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
    });
    found.normal_within(Duration::from_secs(1), "the last");
    judge_charges(&mut found, &names, cluster);
    let during = found.during();
    found.row.note(format!("{moves} moves, {} of {} by policy", during.degraded(), during.len()));
    found.row
}

/// On one cluster, which the last one leaves with a node less.
#[test]
fn failing_cluster_nodes_cause_no_error_and_no_double_charge() {
    let mut cluster = start();
    for scenario in [shard_is_cut_off, replica_takes_over, slots_move, master_dies] {
        scenario(&Profile::SHORT, &mut cluster).judge();
    }
}
