//! The scripts that make a Redis Cluster, and a Redis with sentinels, in Kubernetes: run with real servers.

use super::*;
use crate::support::Process;

const RULES: &str =
    "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 1000000}\n";

/// A server of the script or configuration under test, in a directory of its own.
struct Server {
    process: Process,
    directory: TempDir,
    port: u16,
}

impl Server {
    fn start(port: u16, mut command: Command, directory: TempDir) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = Process::of(child.expect("it starts"), Some(directory.path()));
        Self { process, directory, port }
    }

    fn cli(&self, words: &[&str]) -> String {
        ended(Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(words)).stdout
    }
}

fn component(file: &str) -> PathBuf {
    project("deploy/kubernetes/components").join(file)
}

fn decides(tollgate: &Tollgate) -> bool {
    tollgate.hit("d", &[("k", "v")]).status == 200
}

/// The nodes of a cluster, as pods start them, each in its directory, at addresses that are new. Names that DNS had for
/// others before may be among theirs.
fn nodes(directories: Vec<TempDir>, others: &[u16]) -> Vec<Server> {
    let ports: Vec<u16> = directories.iter().map(|_| free_port()).collect();
    let names: Vec<_> = others.iter().chain(&ports).map(|port| format!("localhost:{port}")).collect();
    let start = |(port, directory): (&u16, TempDir)| {
        let mut command = Command::new("sh");
        command.arg(component("redis-cluster/start.sh")).args(["--bind", "127.0.0.1"]);
        // No node fails because the machine is busy.
        command.args(["--cluster-node-timeout", "30000"]);
        // In a pod, 6379 and its address.
        command.env("PORT", port.to_string()).env("ADDRESS", "127.0.0.1").env("NODES", names.join(" "));
        command.current_dir(&directory);
        Server::start(*port, command, directory)
    };
    ports.iter().zip(directories).map(start).collect()
}

/// Whether all know each other by their addresses of now.
fn are_together(nodes: &[Server]) -> bool {
    nodes.iter().all(|node| {
        let known = node.cli(&["cluster", "nodes"]);
        let connected = known.lines().filter(|line| line.contains(" connected")).count();
        let found = nodes.iter().all(|other| known.contains(&format!(" 127.0.0.1:{}@", other.port)));
        found && connected == nodes.len() && node.cli(&["cluster", "info"]).contains("cluster_state:ok")
    })
}

#[test]
fn six_nodes_form_a_cluster_once_and_find_each_other_again() {
    let nodes_of = nodes;
    // A node of another cluster, at an address that one of these had before.
    let foreign = tempfile::tempdir().expect("a temporary directory");
    let foreign = nodes_of(vec![foreign], &[]).remove(0);
    let directories = (0..6).map(|_| tempfile::tempdir().expect("a temporary directory"));
    let nodes = nodes_of(directories.collect(), &[]);
    let names: Vec<_> = nodes.iter().map(|node| format!("localhost:{}", node.port)).collect();
    let create = || {
        let mut script = Command::new("timeout");
        script.args(["60", "sh"]).arg(component("redis-cluster/create.sh")).env("NODES", names.join(" "));
        ended(&mut script)
    };
    let created = create();
    assert_eq!(created.code, Some(0), "{created:?}");
    wait("the cluster is not whole", || are_together(&nodes));
    let roles: Vec<_> = nodes.iter().map(|node| node.cli(&["role"]).starts_with("master")).collect();
    assert_eq!(roles, [true, true, true, false, false, false]);
    let again = create();
    assert!(again.code == Some(0) && again.stdout.ends_with("there is a cluster\n"), "{again:?}");

    let url = format!("redis+cluster://{}", names[0]);
    let start = |url: &str| Tollgate::serving(RULES, &["--store", url, "--store-timeout", "5s"]);
    assert!(decides(&start(&url)));

    // All pods at once, with the directories that they had.
    let directories = nodes.into_iter().map(|Server { process, directory, .. }| {
        drop(process);
        directory
    });
    let nodes = nodes_of(directories.collect(), &[foreign.port]);
    wait("they do not find each other", || are_together(&nodes));
    assert!(decides(&start(&format!("redis+cluster://localhost:{}", nodes[0].port))));
    // It was the first candidate of each of them.
    let known = foreign.cli(&["cluster", "nodes"]);
    assert!(known.lines().count() == 1 && known.contains("myself"), "{known}");
}

/// One of three servers, or one of three sentinels, as a pod starts it.
fn part(role: &str, port: u16, first: u16, sentinels: &[u16], directory: &Path) -> Command {
    let all: Vec<_> = sentinels.iter().map(|port| format!("localhost:{port}")).collect();
    let mut command = Command::new("sh");
    command.arg(component("redis-sentinel/start.sh")).arg(role);
    command.env("SELF", format!("localhost:{port}")).env("FIRST", format!("localhost:{first}"));
    command.env("SENTINELS", all.join(" ")).env("DATA", directory);
    command
}

#[test]
fn sentinels_find_a_new_master_and_the_old_one_follows_it() {
    let (ports, sentinels): (Vec<u16>, Vec<u16>) = (0..3).map(|_| (free_port(), free_port())).unzip();
    let start = |role: &str, port: u16| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let command = part(role, port, ports[0], &sentinels, directory.path());
        Server::start(port, command, directory)
    };
    let mut servers: Vec<_> = ports.iter().map(|port| start("redis", *port)).collect();
    wait("the replicas do not follow", || {
        servers[0].cli(&["info", "replication"]).contains("connected_slaves:2")
    });
    let watchers: Vec<_> = sentinels.iter().map(|port| start("sentinel", *port)).collect();
    wait("the sentinels do not find each other", || {
        watchers.iter().all(|watcher| {
            let reply = watcher.cli(&["info", "sentinel"]);
            reply.contains("status=ok") && reply.contains("slaves=2,sentinels=3")
        })
    });

    let places: Vec<_> = sentinels.iter().map(|port| format!("localhost:{port}")).collect();
    let url = format!("redis+sentinel://{}/tollgate", places.join(","));
    let tollgate = Tollgate::serving(RULES, &["--store", &url, "--store-timeout", "1s"]);
    // A master takes writes once its replicas have acknowledged something, which it checks each second.
    wait("the master takes no writes", || decides(&tollgate));
    drop(servers.remove(0));
    wait("no server decides after the master's end", || decides(&tollgate));
    let masters =
        |servers: &[Server]| servers.iter().filter(|it| it.cli(&["role"]).starts_with("master")).count();
    assert_eq!(masters(&servers), 1);
    servers.push(start("redis", ports[0]));
    wait("the old master does not follow", || {
        servers[2].cli(&["info", "replication"]).contains("master_link_status:up")
    });
    assert_eq!(masters(&servers), 1);
}
