//! Nodes that misbehave: servers of these tests' own, which speak as much of the protocol as it takes.

use std::io::{self, BufRead};

use tracing::subscriber::DefaultGuard;

use super::*;

/// Answers to `EVALSHA`, given how many there were before; without one, the connection is closed.
type Script = dyn Fn(usize) -> Option<String> + Send + Sync;

/// A node that claims every slot.
struct Node {
    port: u16,
    /// The number of script evaluations.
    evaluated: Arc<AtomicUsize>,
    /// The number of slot requests.
    slot_reads: Arc<AtomicUsize>,
    /// The number of open connections.
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
        let [evaluated, slot_reads, clients] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (counters, present) = ([&evaluated, &slot_reads].map(Arc::clone), Arc::clone(&clients));
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
        Node { port, evaluated, slot_reads, clients }
    };
    listeners.into_iter().map(start).collect()
}

pub(super) fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

fn serve(mut client: &TcpStream, port: u16, counters: &[Arc<AtomicUsize>; 2], script: &Script) {
    let [evaluated, slot_reads] = counters;
    let mut reader = BufReader::new(client);
    while let Some(command) = read(&mut reader) {
        let answer = match command.first().map(String::as_str) {
            Some("EVALSHA") => script(evaluated.fetch_add(1, Ordering::SeqCst)),
            Some("CLUSTER") => {
                slot_reads.fetch_add(1, Ordering::SeqCst);
                Some(format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$0\r\n\r\n:{port}\r\n$1\r\nx\r\n"))
            }
            Some("PING") => Some("+PONG\r\n".to_owned()),
            _ => Some("+OK\r\n".to_owned()),
        };
        let Some(answer) = answer else { return };
        if client.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// One command, if there is one.
pub(super) fn read(reader: &mut impl BufRead) -> Option<Vec<String>> {
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

/// A node, and a store that is connected to it.
async fn connected_to(
    script: impl Fn(usize) -> Option<String> + Send + Sync + 'static,
) -> (Node, RedisStore) {
    let node = nodes(vec![listen()], script).remove(0);
    let store = connected(&format!("redis+cluster://127.0.0.1:{}", node.port), "").await;
    (node, store)
}

#[tokio::test]
async fn a_charge_with_unknown_outcome_is_not_resent() {
    let (node, store) = connected_to(|_| None).await;
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("no answer");
    assert!(matches!(error, StoreError::Disconnected(_)), "{error:?}");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(node.evaluated.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn redirection_loops_end() {
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
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision");
    assert!(matches!(error, StoreError::Declined(_)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(4), "that long only if time ends it");
    let evaluated: usize = nodes.iter().map(|node| node.evaluated.load(Ordering::SeqCst)).sum();
    assert!((3..=20).contains(&evaluated), "{evaluated}");

    // Each redirection requests the slots, which are read at a bounded rate.
    let slot_reads = || nodes.iter().map(|node| node.slot_reads.load(Ordering::SeqCst)).sum::<usize>();
    let (before, begun) = (slot_reads(), Instant::now());
    while slot_reads() < before + 3 || begun.elapsed() < Duration::from_secs(1) {
        assert!(begun.elapsed() < Duration::from_secs(20), "they are not read");
        charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision");
    }
    let (read, seconds) = (slot_reads() - before, begun.elapsed().as_secs_f64());
    assert!(read as f64 <= 12.0 * seconds, "{read} in {seconds} s");
}

#[tokio::test]
async fn a_cluster_that_is_down_or_starting_charges_nothing_and_reports_it() {
    for error in ["CLUSTERDOWN The cluster is down", "LOADING Redis is loading", "MASTERDOWN Link is down"] {
        let (node, store) = connected_to(move |_| Some(format!("-{error}\r\n"))).await;
        let found = charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision");
        assert!(matches!(found, StoreError::Declined(_)), "{found:?}");
        assert_eq!(node.evaluated.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_slot_that_does_not_arrive_in_time_charges_nothing_and_reports_it() {
    for (answer, most) in [("TRYAGAIN Multiple keys", 40), ("OOM no memory", 1)] {
        let nodes = nodes(vec![listen()], move |_| Some(format!("-{answer}\r\n")));
        let url = format!("redis+cluster://127.0.0.1:{}", nodes[0].port);
        drop(connected(&url, "").await);
        let settings = RedisSettings { timeout: Duration::from_millis(200), ..settings(&url) };
        let store = open(&settings);
        assert!(store.connected().await);
        let mut error = charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision");
        for _ in 0..10 {
            // An attempt was under way when time was over, so it is not known what came of that one.
            if matches!(error, StoreError::Timeout(..)) {
                nodes[0].evaluated.store(0, Ordering::SeqCst);
                error = charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision");
            }
        }
        match most {
            1 => assert!(matches!(error, StoreError::Declined(_)), "{error:?}"),
            _ => assert!(matches!(error, StoreError::SlotMigrating(_)), "{error:?}"),
        }
        // The pauses grow.
        let evaluated = nodes[0].evaluated.load(Ordering::SeqCst);
        assert!((1..=most).contains(&evaluated), "{evaluated}");
        if most > 1 {
            assert!(evaluated > 3, "{evaluated}");
        }
    }
}

#[tokio::test]
async fn waiting_for_an_owner_without_an_address_is_bounded() {
    let slot = one("a", Hits::ONE).cells[0].key.slot();
    let (node, store) = connected_to(move |_| Some(format!("-MOVED {slot} ?:7000\r\n"))).await;
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision");
    assert!(matches!(error, StoreError::Declined(_)), "{error:?}");
    let evaluated = node.evaluated.load(Ordering::SeqCst);
    assert!((4..=20).contains(&evaluated), "{evaluated}");
}

#[tokio::test]
async fn a_malformed_reply_may_have_charged() {
    let (_node, store) = connected_to(|_| Some("?what\r\n".to_owned())).await;
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("no answer");
    assert!(matches!(error, StoreError::Disconnected(_)), "{error:?}");
}

#[tokio::test]
async fn slot_refreshes_back_off_while_they_change_nothing() {
    for (answer, most) in [("CLUSTERDOWN The cluster is down", 9), ("MISCONF no disk", 1)] {
        let (node, store) = connected_to(move |_| Some(format!("-{answer}\r\n"))).await;
        let slot_reads = || node.slot_reads.load(Ordering::SeqCst);
        let (before, begun) = (slot_reads(), Instant::now());
        while begun.elapsed() < Duration::from_secs(3) {
            charge(&store, &one("a", Hits::ONE)).await.expect_err("no decision");
            sleep(Duration::from_millis(5)).await;
        }
        assert!(slot_reads() - before <= most, "{answer}: {}", slot_reads() - before);
    }
}

#[tokio::test]
async fn the_script_is_loaded_before_the_first_call() {
    let (redis, store) = Redis::start_store();
    assert!(store.connected().await);
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    let reply: String = cmd("INFO").arg("errorstats").query(&mut redis.connect()).expect("a reply");
    assert!(!reply.contains("NOSCRIPT"), "{reply}");
    // A user who may not load it uses what is there; then, it is missed.
    let mut admin = redis.connect();
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "app", "on", ">secret", "~*", "+@all", "-script"]);
    user.exec(&mut admin).expect("set");
    let url = redis.url().replace("://", "://app:secret@");
    let store = open(&settings(&url));
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    cmd("SCRIPT").arg("FLUSH").exec(&mut admin).expect("flushed");
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("it is not there");
    assert!(matches!(&error, StoreError::Declined(_)), "{error:?}");
    charge(&redis.store(), &one("a", Hits::ONE)).await.expect("loaded");
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
}

/// The log of this thread, which runs the test's tasks.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Keeps the lines for as long as the guard is there.
    pub(super) fn keep() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The number of lines with a text.
    pub(super) fn count(&self, text: &str) -> usize {
        self.text().matches(text).count()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("a text")
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_read_only_server_is_logged_once() {
    let (lines, _guard) = Lines::keep();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", "1"]);
    let store = replica.store();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        charge(&store, &one("a", Hits::ONE)).await.expect_err("it takes no writes");
        sleep(Duration::from_millis(20)).await;
    }
    cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica.connect()).expect("promoted");
    recovered(&store, "a", Instant::now()).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(lines.count("Redis connection lost"), 1, "{}", lines.text());
    assert_eq!(lines.count("Redis connection recovered"), 1, "{}", lines.text());
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
    until("connections are left", async || clients() == 0).await;
}
