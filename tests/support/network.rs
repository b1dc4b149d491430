//! A network of proxies between the nodes of a cluster and its clients, which a test can partition.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::sync::{Mutex, OnceLock};

use super::prelude::*;

/// The interval at which a connection that is cut reads whether it still is.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The first bytes of a connection, in which its client names itself.
const NAMING_BYTES: usize = 4_096;
/// The distance from a node's port for clients to its bus.
const BUS_OFFSET: u16 = 10_000;

/// An end of connections: a node of the cluster, or the clients of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Node(usize),
    User(&'static str),
}

/// A network in which all connections to the nodes of a cluster pass through proxies: those of their bus, of
/// replication, and of clients.
#[derive(Debug)]
pub(crate) struct Network {
    state: Arc<NetworkState>,
    /// The ports that the nodes announce to clients.
    ports: Vec<u16>,
}

#[derive(Debug, Default)]
struct NetworkState {
    /// Bytes that a party writes on each of its connections first.
    marks: Vec<(Party, Vec<u8>)>,
    /// The parties that reach only each other.
    minority: Mutex<Vec<Party>>,
}

impl Network {
    /// Puts proxies before all nodes, and waits until the nodes use them. Clients are distinguished by their users.
    /// Before Redis 7, a node does not change what it announces of itself.
    pub(crate) fn before(cluster: &Cluster, nodes: usize, users: &[&'static str]) -> Self {
        let names = users.iter().map(|user| (Party::User(user), user.as_bytes().to_vec()));
        // A node states its id in each message of the bus, and its port when it begins to replicate.
        let marks = (0..nodes).flat_map(|node| {
            let port = format!("listening-port\r\n$5\r\n{}\r\n", cluster.port(node));
            [cluster.id(node).as_bytes().to_vec(), port.into_bytes()].map(|mark| (Party::Node(node), mark))
        });
        let state = Arc::new(NetworkState { marks: names.chain(marks).collect(), ..Default::default() });
        let mut addresses = Vec::new();
        for node in 0..nodes {
            let port = proxy(&state, node, cluster.port(node));
            let bus = proxy(&state, node, cluster.port(node) + BUS_OFFSET);
            cluster.announce(node, port);
            cluster.set(node, "cluster-announce-bus-port", &bus.to_string());
            addresses.push((port, format!(" 127.0.0.1:{port}@{bus}")));
        }
        let knows_all = |node: usize| {
            let known: String = cmd("CLUSTER").arg("NODES").query(&mut cluster.node(node)).expect("nodes");
            let links = known.lines().filter(|line| line.contains(" connected")).count();
            addresses.iter().all(|(_, address)| known.contains(address)) && links == nodes
        };
        wait("the nodes do not use the proxies", || (0..nodes).all(knows_all));
        let network = Self { state, ports: addresses.into_iter().map(|(port, _)| port).collect() };
        wait("the replicas do not use the proxies", || {
            (0..nodes).all(|node| network.is_master_or_replicates(cluster, node))
        });
        network
    }

    fn is_master_or_replicates(&self, cluster: &Cluster, node: usize) -> bool {
        let info = cluster.info(node, "replication");
        let is_proxied = self.ports.iter().any(|port| info.contains(&format!("master_port:{port}\r")));
        info.contains("role:master") || is_proxied && info.contains("master_link_status:up")
    }

    /// Cuts the connections between these parties and all others: nothing passes, and nothing is closed.
    pub(crate) fn cut_off(&self, minority: &[Party]) {
        *self.state.minority.lock().expect("no panic") = minority.to_vec();
    }

    /// Connects all parties again; what was sent meanwhile arrives.
    pub(crate) fn heal(&self) {
        self.cut_off(&[]);
    }

    /// The URL of the cluster for a user.
    pub(crate) fn url(&self, user: &str, password: &str) -> String {
        let nodes: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+cluster://{user}:{password}@{}", nodes.join(","))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The threads of connections that are cut would wait for ever.
        self.heal();
    }
}

/// Starts a proxy for a port of a node; its port.
fn proxy(state: &Arc<NetworkState>, node: usize, server: u16) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let state = Arc::clone(state);
    thread::spawn(move || {
        for client in listener.incoming() {
            // A server that is not there refuses, and so does this.
            let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, server));
            let pair = client.and_then(|client| Ok((client, connect()?)));
            let _ = pair.and_then(|(client, server)| carry(&state, Party::Node(node), &client, &server));
        }
    });
    port
}

/// Carries a connection to a node in both directions.
fn carry(state: &Arc<NetworkState>, node: Party, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    let party = Arc::<OnceLock<Party>>::default();
    for (from, to, is_naming) in [(client, server, true), (server, client, false)] {
        from.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (state, party) = (Arc::clone(state), Arc::clone(&party));
        thread::spawn(move || {
            let _ = state.pump(&from, &to, node, &party, is_naming);
            let _ = to.shutdown(Shutdown::Write);
            let _ = from.shutdown(Shutdown::Read);
        });
    }
    Ok(())
}

impl NetworkState {
    fn pump(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        node: Party,
        party: &OnceLock<Party>,
        is_naming: bool,
    ) -> io::Result<()> {
        let (mut bytes, mut first) = ([0; 65_536], Vec::new());
        loop {
            let length = from.read(&mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            if is_naming && party.get().is_none() && first.len() < NAMING_BYTES {
                first.extend(&bytes[..length]);
                let named = self.named_in(&first);
                named.into_iter().for_each(|named| _ = party.set(named));
            }
            while party.get().is_some_and(|party| self.is_cut(*party, node)) {
                thread::sleep(POLL_INTERVAL);
            }
            to.write_all(&bytes[..length])?;
        }
    }

    /// The party that names itself in the first bytes of a connection, before it names others.
    fn named_in(&self, first: &[u8]) -> Option<Party> {
        let place = |mark: &[u8]| first.windows(mark.len()).position(|window| window == mark);
        let found = self.marks.iter().filter_map(|(party, mark)| Some((place(mark)?, *party)));
        found.min_by_key(|(place, _)| *place).map(|(_, party)| party)
    }

    fn is_cut(&self, one: Party, other: Party) -> bool {
        let minority = self.minority.lock().expect("no panic");
        minority.contains(&one) != minority.contains(&other)
    }
}
