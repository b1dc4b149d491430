//! Nodes that misbehave: servers of these tests' own, which speak as much of the protocol as it takes.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate::{
    descriptor::Hits,
    store::{RedisStore, StoreError},
};

use super::{charge, connected, one};
use crate::support::redis::{Redis, settings};

/// Answers to `EVALSHA`, given how many there were before; without one, the connection is closed.
type Script = dyn Fn(usize) -> Option<String> + Send + Sync;

/// A node that claims every slot.
struct Node {
    port: u16,
    /// How often it was told to evaluate the script.
    evaluated: Arc<AtomicUsize>,
    /// How often it was asked for the slots.
    asked: Arc<AtomicUsize>,
    /// How many connections there are.
    clients: Arc<AtomicUsize>,
}

/// Starts a node for each port.
fn nodes(
    listeners: Vec<TcpListener>,
    script: impl Fn(usize) -> Option<String> + Send + Sync + 'static,
) -> Vec<Node> {
    let script: Arc<Script> = Arc::new(script);
    let start = |listener: TcpListener| {
        let port = listener.local_addr().expect("an address").port();
        let [evaluated, asked, clients] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (counters, present) = ([&evaluated, &asked].map(Arc::clone), Arc::clone(&clients));
        let script = Arc::clone(&script);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (counters, present, script) =
                    (counters.clone(), Arc::clone(&present), Arc::clone(&script));
                present.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    serve(&client.expect("a client"), port, &counters, &*script);
                    present.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Node { port, evaluated, asked, clients }
    };
    listeners.into_iter().map(start).collect()
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

fn serve(mut client: &TcpStream, port: u16, counters: &[Arc<AtomicUsize>; 2], script: &Script) {
    let [evaluated, asked] = counters;
    let mut reader = BufReader::new(client);
    while let Some(command) = read(&mut reader) {
        let answer = match command.first().map(String::as_str) {
            Some("EVALSHA") => script(evaluated.fetch_add(1, Ordering::SeqCst)),
            Some("CLUSTER") => {
                asked.fetch_add(1, Ordering::SeqCst);
                Some(format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$0\r\n\r\n:{port}\r\n$1\r\nx\r\n"))
            }
            _ => Some("+OK\r\n".to_owned()),
        };
        let Some(answer) = answer else { return };
        if client.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// One command, if there is one.
fn read(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let number = |reader: &mut dyn BufRead| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    (0..number(reader)?)
        .map(|_| {
            let mut word = vec![0; number(reader)? + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(String::from_utf8_lossy(&word).into_owned())
        })
        .collect()
}

#[tokio::test]
async fn a_charge_whose_outcome_is_unknown_is_not_sent_again() {
    let nodes = nodes(vec![listen()], |_| None);
    let store = connected(&format!("redis+cluster://127.0.0.1:{}", nodes[0].port), "").await;
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("no answer");
    assert!(matches!(error, StoreError::Disconnected(_)), "{error:?}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(nodes[0].evaluated.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nodes_that_send_a_call_to_each_other_are_not_asked_for_ever() {
    let listeners = vec![listen(), listen()];
    let ports: Vec<u16> =
        listeners.iter().map(|listener| listener.local_addr().expect("an address").port()).collect();
    let slot = one("a", Hits::ONE).cells[0].key.slot();
    // Together they name each other in turn.
    let turn = AtomicUsize::new(0);
    let nodes = nodes(listeners, move |_| {
        let to = ports[turn.fetch_add(1, Ordering::SeqCst) % 2];
        Some(format!("-MOVED {slot} 127.0.0.1:{to}\r\n"))
    });
    let store = connected(&format!("redis+cluster://127.0.0.1:{}", nodes[0].port), "").await;
    let begun = Instant::now();
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("nobody decides");
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    let evaluated: usize = nodes.iter().map(|node| node.evaluated.load(Ordering::SeqCst)).sum();
    assert!((3..=20).contains(&evaluated), "{evaluated}");

    // Each redirection asks for the slots, which are read as often as makes sense.
    let asked = || nodes.iter().map(|node| node.asked.load(Ordering::SeqCst)).sum::<usize>();
    let (before, begun) = (asked(), Instant::now());
    while begun.elapsed() < Duration::from_secs(1) {
        charge(&store, &one("a", Hits::ONE)).await.expect_err("nobody decides");
    }
    assert!((3..=12).contains(&(asked() - before)), "{}", asked() - before);
}

#[tokio::test]
async fn a_cluster_that_is_down_or_starting_charges_nothing_and_says_so() {
    for error in ["CLUSTERDOWN The cluster is down", "LOADING Redis is loading", "MASTERDOWN Link is down"] {
        let nodes = nodes(vec![listen()], move |_| Some(format!("-{error}\r\n")));
        let store = connected(&format!("redis+cluster://127.0.0.1:{}", nodes[0].port), "").await;
        let found = charge(&store, &one("a", Hits::ONE)).await.expect_err("nobody decides");
        assert!(matches!(found, StoreError::Refused(_)), "{found:?}");
        assert_eq!(nodes[0].evaluated.load(Ordering::SeqCst), 1);
    }
}

/// A sentinel that says that the master is at this port, on this machine.
fn sentinel(master: Arc<AtomicU16>) -> u16 {
    let listener = listen();
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (master, mut client) = (Arc::clone(&master), client.expect("a client"));
            thread::spawn(move || {
                let mut reader = BufReader::new(client.try_clone().expect("another handle"));
                while let Some(command) = read(&mut reader) {
                    let port = master.load(Ordering::SeqCst).to_string();
                    let answer = match command[0].as_str() {
                        "SENTINEL" => format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()),
                        _ => "+OK\r\n".to_owned(),
                    };
                    if client.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_server_is_left_when_it_is_not_the_master_that_is_named() {
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", "1"]);
    let masters = [Redis::start(), Redis::start()];
    let named = Arc::new(AtomicU16::new(replica.port()));
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel(Arc::clone(&named)));
    let store = RedisStore::open(&settings(&url)).expect("valid settings");
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("it is no master");
    assert!(error.to_string().contains("is not a master"), "{error}");
    for master in &masters {
        named.store(master.port(), Ordering::SeqCst);
        let begun = Instant::now();
        // The one before it works as well as ever.
        let is_there = || {
            let keys = redis::cmd("DBSIZE");
            keys.query::<usize>(&mut master.connect()).expect("a number") == 1
        };
        while !is_there() {
            assert!(begun.elapsed() < Duration::from_secs(5), "it is not followed");
            let _ = charge(&store, &one("a", Hits::ONE)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_store_that_is_dropped_leaves_no_connection() {
    let nodes = nodes(vec![listen()], |_| Some("-ERR no\r\n".to_owned()));
    let clients = || nodes[0].clients.load(Ordering::SeqCst);
    let store = connected(&format!("redis+cluster://127.0.0.1:{}", nodes[0].port), "").await;
    let other = store.clone();
    drop(store);
    charge(&other, &one("a", Hits::ONE)).await.expect_err("it refuses");
    assert!(clients() > 0);
    drop(other);
    super::wait("connections are left", || clients() == 0).await;
}
