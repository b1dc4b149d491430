//! A Redis Cluster.

use std::{fmt::Write as _, ops::RangeInclusive, sync::LazyLock};

use super::prelude::*;

/// Masters, and as many replicas behind them: replica `n` is node `masters + n`. They end with the test.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Option<Redis>>,
    ports: Vec<u16>,
    ids: Vec<String>,
    masters: usize,
    /// The default user's.
    password: String,
}

/// The cluster that tests share if they don't end any of its nodes: three masters, and their replicas.
pub(crate) fn shared() -> &'static Cluster {
    // A long time-out, so that no node fails because the machine is busy.
    static SHARED: LazyLock<Cluster> = LazyLock::new(|| {
        let cluster = Cluster::start(3, 3, &[], "");
        (0..cluster.nodes.len()).for_each(|node| cluster.set(node, "cluster-node-timeout", "30000"));
        cluster
    });
    &SHARED
}

impl Cluster {
    /// Starts a cluster; the nodes listen for clients where `--port` or `--tls-port` says.
    pub(crate) fn start(masters: usize, replicas: usize, arguments: &[&str], password: &str) -> Self {
        let has_tls = arguments.contains(&"--tls-cluster");
        let ports: Vec<u16> = (0..masters + replicas).map(|_| free_port()).collect();
        let nodes = ports.iter().map(|port| {
            let text = port.to_string();
            // The node timeout also determines how often nodes exchange gossip.
            let mut all = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
            // A replica that has got nothing yet, not even this, does not count.
            all.extend(["--repl-ping-replica-period", "1"]);
            all.extend(arguments);
            if !password.is_empty() {
                all.extend(["--requirepass", password, "--masterauth", password]);
            }
            if has_tls {
                all.extend(["--tls-port", &text]);
            }
            Some(Redis::start_on(if has_tls { 0 } else { *port }, &all))
        });
        let mut cluster =
            Self { nodes: nodes.collect(), ports, ids: Vec::new(), masters, password: password.into() };
        cluster.ids = (0..masters + replicas)
            .map(|node| cmd("CLUSTER").arg("MYID").query(&mut cluster.node(node)).expect("an id"))
            .collect();
        cluster.form(replicas);
        // Longer, so that no node fails because the machine is busy.
        (0..cluster.nodes.len()).for_each(|node| cluster.set(node, "cluster-node-timeout", "5000"));
        cluster
    }

    fn form(&self, replicas: usize) {
        for node in 0..self.nodes.len() {
            let mut connection = self.node(node);
            let epoch = node + 1;
            cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(epoch).exec(&mut connection).expect("set");
            if node < self.masters {
                let slots: Vec<u16> = self.slots(node).collect();
                cmd("CLUSTER").arg("ADDSLOTS").arg(slots).exec(&mut connection).expect("added");
            }
            for other in &self.ports[..node] {
                cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(other).exec(&mut connection).expect("met");
            }
        }
        for replica in 0..replicas {
            let mut connection = self.node(self.masters + replica);
            let master = &self.ids[replica % self.masters];
            wait("a replica does not get to know its master", || {
                cmd("CLUSTER").arg("REPLICATE").arg(master).exec(&mut connection).is_ok()
            });
        }
        for node in 0..self.nodes.len() {
            wait("the cluster does not form", || {
                let mut question = cmd("CLUSTER");
                let reply: String = question.arg("INFO").query(&mut self.node(node)).expect("a reply");
                let slots = reply.contains("cluster_state:ok") && self.masters_known(node) == self.masters;
                slots && reply.contains(&format!("cluster_known_nodes:{}", self.nodes.len()))
            });
        }
        for replica in 0..replicas {
            wait("a replica does not follow", || {
                let reply = self.info(self.masters + replica, "replication");
                reply.contains("master_link_status:up")
            });
        }
    }

    /// The number of masters that a node knows as owners of their slots, with all replicas.
    fn masters_known(&self, node: usize) -> usize {
        let reply: Vec<redis::Value> =
            cmd("CLUSTER").arg("SLOTS").query(&mut self.node(node)).expect("a reply");
        let with_replicas = self.nodes.len() / self.masters + 3 - 1;
        reply
            .iter()
            .filter(|range| matches!(range, redis::Value::Array(parts) if parts.len() >= with_replicas))
            .count()
    }

    /// Changes a setting of a node.
    pub(crate) fn set(&self, node: usize, name: &str, value: &str) {
        cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut self.node(node)).expect("set");
    }

    /// A section of a node's INFO.
    pub(crate) fn info(&self, node: usize, section: &str) -> String {
        cmd("INFO").arg(section).query(&mut self.node(node)).expect("the node answers")
    }

    /// The slots that a master has at first.
    pub(crate) fn slots(&self, master: usize) -> RangeInclusive<u16> {
        let at = |part: usize| u16::try_from(16_384 * part / self.masters).expect("in range");
        at(master)..=at(master + 1) - 1
    }

    /// The master that has a slot at first.
    pub(crate) fn master_of(&self, slot: u16) -> usize {
        (0..self.masters).find(|master| self.slots(*master).contains(&slot)).expect("every slot has a master")
    }

    /// A connection for looking at a node that runs, as the default user.
    pub(crate) fn node(&self, number: usize) -> redis::Connection {
        self.nodes[number].as_ref().expect("it runs").connect_as("default", &self.password)
    }

    pub(crate) fn port(&self, number: usize) -> u16 {
        self.ports[number]
    }

    pub(crate) fn id(&self, number: usize) -> &str {
        &self.ids[number]
    }

    /// Kills a node.
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number] = None;
    }

    /// Kills a node and starts it again, as the one that it was, after `pause`.
    pub(crate) fn restart_after(&mut self, number: usize, pause: Duration) {
        self.nodes[number].as_mut().expect("it runs").restart_after(pause);
    }

    /// Has a node fall silent.
    pub(crate) fn stop(&self, number: usize) {
        self.nodes[number].as_ref().expect("it runs").signal("STOP");
    }

    /// Has a node that was silent go on.
    pub(crate) fn go_on(&self, number: usize) {
        self.nodes[number].as_ref().expect("it runs").signal("CONT");
    }

    /// Makes a node announce another port to clients and replicas.
    pub(crate) fn announce(&self, number: usize, port: u16) {
        self.set(number, "cluster-announce-port", &port.to_string());
    }

    /// Has a replica begin to take over from its master. It may have no time for that, and give up.
    pub(crate) fn fail_over(&self, replica: usize) {
        let _ = cmd("CLUSTER").arg("FAILOVER").exec(&mut self.node(replica));
    }

    /// Whether a node says that it is a master.
    pub(crate) fn is_master(&self, number: usize) -> bool {
        self.info(number, "replication").contains("role:master")
    }

    /// The addresses of all nodes, with commas.
    pub(crate) fn addresses(&self) -> String {
        self.ports.iter().fold(String::new(), |mut text, port| {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}127.0.0.1:{port}");
            text
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+cluster://{}", self.addresses())
    }

    /// A store whose keys begin with `prefix`.
    pub(crate) fn store(&self, prefix: &str) -> RedisStore {
        let settings = RedisSettings { key_prefix: prefix.into(), ..settings(&self.url()) };
        RedisStore::open(&settings).expect("valid settings")
    }

    /// Says that a slot is about to move.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let mut target = cmd("CLUSTER");
        target.arg("SETSLOT").arg(slot).arg("IMPORTING").arg(self.id(from));
        target.exec(&mut self.node(to)).expect("importing");
        let mut source = cmd("CLUSTER");
        source.arg("SETSLOT").arg(slot).arg("MIGRATING").arg(self.id(to));
        source.exec(&mut self.node(from)).expect("migrating");
    }

    /// Moves one key.
    pub(crate) fn move_key(&self, key: &[u8], from: usize, to: usize) {
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.port(to)).arg(key).arg(0).arg(5_000);
        if !self.password.is_empty() {
            migrate.arg("AUTH").arg(&self.password);
        }
        migrate.exec(&mut self.node(from)).expect("migrated");
    }

    /// Migrates the remaining keys of a slot, and notifies every master.
    pub(crate) fn end_move(&self, slot: u16, from: usize, to: usize) {
        loop {
            let keys: Vec<Vec<u8>> = cmd("CLUSTER")
                .arg("GETKEYSINSLOT")
                .arg(slot)
                .arg(100)
                .query(&mut self.node(from))
                .expect("keys");
            if keys.is_empty() {
                break;
            }
            keys.iter().for_each(|key| self.move_key(key, from, to));
        }
        let others = (0..self.masters).filter(|node| *node != from && *node != to);
        for node in [to, from].into_iter().chain(others) {
            let mut command = cmd("CLUSTER");
            command.arg("SETSLOT").arg(slot).arg("NODE").arg(self.id(to));
            command.exec(&mut self.node(node)).expect("owned");
        }
        wait("the masters never agreed on their epochs", || self.agrees_on_epochs());
    }

    /// Whether every master knows the epoch of every other. Before that, one that takes a slot may take too low an
    /// epoch for it, and lose it to an old message of the one that had it.
    fn agrees_on_epochs(&self) -> bool {
        let mut views = (0..self.masters).map(|number| self.epochs(number));
        let first = views.next();
        views.all(|view| Some(view) == first)
    }

    /// The epochs of the masters in the eyes of one of them, by their names.
    fn epochs(&self, number: usize) -> Vec<(String, String)> {
        let nodes: String = cmd("CLUSTER").arg("NODES").query(&mut self.node(number)).expect("nodes");
        let fields = nodes.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let masters = fields.filter(|fields| fields[2].contains("master"));
        let mut epochs: Vec<_> = masters.map(|fields| (fields[0].to_owned(), fields[6].to_owned())).collect();
        epochs.sort();
        epochs
    }
}
