//! Nodes that lie about the topology, or about whose reply a reply is.

use std::{collections::HashSet, net::IpAddr};

use super::misbehaving_nodes::{listen, read};
use super::*;

/// The answer to a command.
type Answer = dyn Fn(&[String]) -> String + Send + Sync;

/// Serves every client of a listener by `answer`.
fn serve(listener: TcpListener, answer: impl Fn(&[String]) -> String + Send + Sync + 'static) {
    let answer: Arc<Answer> = Arc::new(answer);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, answer) = (client.expect("a client"), Arc::clone(&answer));
            thread::spawn(move || {
                let mut reader = BufReader::new(client.try_clone().expect("a socket"));
                while let Some(command) = read(&mut reader) {
                    if client.write_all(answer(&command).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// The hosts at which clients have called a port that all of this machine's addresses have.
struct Callers {
    port: u16,
    hosts: Arc<Mutex<HashSet<IpAddr>>>,
}

impl Callers {
    /// Accepts every connection, and answers none.
    fn start() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let hosts = Arc::<Mutex<HashSet<IpAddr>>>::default();
        let found = Arc::clone(&hosts);
        thread::spawn(move || {
            let mut open = Vec::new();
            for client in listener.incoming() {
                let client = client.expect("a client");
                let host = client.local_addr().expect("an address").ip();
                found.lock().expect("no panic").insert(host);
                open.push(client);
            }
        });
        Self { port, hosts }
    }

    fn count(&self) -> usize {
        self.hosts.lock().expect("no panic").len()
    }
}

/// An address of this machine.
fn host(number: usize) -> String {
    format!("127.{}.{}.{}", 1 + number / 62_500, number / 250 % 250, number % 250 + 1)
}

fn slot(first: usize, last: usize, host: &str, port: u16) -> String {
    format!("*3\r\n:{first}\r\n:{last}\r\n*3\r\n${}\r\n{host}\r\n:{port}\r\n$1\r\nx\r\n", host.len())
}

#[tokio::test]
async fn a_node_that_names_thousands_of_masters_causes_no_connection_to_them() {
    let callers = Callers::start();
    let listener = listen();
    let own = listener.local_addr().expect("an address").port();
    let named = callers.port;
    let each: String = (0..16_384).map(|number| slot(number, number, &host(number), named)).collect();
    let (lie, truth) = (format!("*16384\r\n{each}"), format!("*1\r\n{}", slot(0, 16_383, "127.0.0.1", own)));
    let slot_reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&slot_reads);
    serve(listener, move |command| match command[0].as_str() {
        "CLUSTER" if counted.fetch_add(1, Ordering::SeqCst) < 4 => lie.clone(),
        "CLUSTER" => truth.clone(),
        "EVALSHA" => "-ERR reached\r\n".to_owned(),
        "PING" => "+PONG\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    let store = open(&settings(&format!("redis+cluster://127.0.0.1:{own}")));
    // Its slots are read again until it names fewer.
    let error = async || charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision").to_string();
    read_until(error, |error| error.contains("reached")).await;
    assert!(slot_reads.load(Ordering::SeqCst) > 4);
    assert_eq!(callers.count(), 0);
}

#[tokio::test]
async fn redirections_to_ever_new_hosts_cause_few_connections() {
    let callers = Callers::start();
    let listener = listen();
    let own = listener.local_addr().expect("an address").port();
    let named = callers.port;
    let [slot_reads, turn] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (counted, turns) = (Arc::clone(&slot_reads), Arc::clone(&turn));
    let truth = format!("*1\r\n{}", slot(0, 16_383, "127.0.0.1", own));
    serve(listener, move |command| match command[0].as_str() {
        "CLUSTER" => {
            counted.fetch_add(1, Ordering::SeqCst);
            truth.clone()
        }
        "EVALSHA" => {
            let number = turns.fetch_add(1, Ordering::SeqCst);
            let kind = if number % 2 == 0 { "MOVED" } else { "ASK" };
            format!("-{kind} 1 {}:{named}\r\n", host(number))
        }
        "PING" => "+PONG\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    let store = connected(&format!("redis+cluster://127.0.0.1:{own}"), "").await;
    for round in 0..4 {
        let requests: Vec<_> = (0..200).map(|number| one(&format!("{round} {number}"), Hits::ONE)).collect();
        for outcome in join_all(requests.iter().map(|request| charge(&store, request))).await {
            outcome.expect_err("no decision");
        }
    }
    let (found, slot_reads) = (callers.count(), slot_reads.load(Ordering::SeqCst));
    assert!(found <= 16 * (slot_reads + 1), "{found} hosts, and the slots were read {slot_reads} times");
    assert!(turn.load(Ordering::SeqCst) > 200, "hardly any redirection");
}

#[tokio::test]
async fn a_connection_whose_replies_are_those_to_other_commands_is_replaced() {
    for reply in ["$13\r\nanother reply\r\n", "+OK\r\n", ":7\r\n"] {
        let listener = listen();
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        serve(listener, move |command| match command[0].as_str() {
            "SCRIPT" => {
                // The last command before a connection is in use.
                counted.fetch_add(1, Ordering::SeqCst);
                "+OK\r\n".to_owned()
            }
            "PING" => reply.to_owned(),
            _ => "+OK\r\n".to_owned(),
        });
        let _store = connected(&format!("redis://127.0.0.1:{port}"), "").await;
        until("it is kept", async || connections.load(Ordering::SeqCst) >= 2).await;
    }
}
