//! The driver against a server whose replies the test holds back.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use tokio::{sync::oneshot, task::yield_now, time::Instant};

use crate::{CounterStore as _, LateOutcome, RedisStore, StoreError, redis::RedisSettings, test_prelude::*};

/// Longer than a command takes to be sent, even on a busy machine.
const TIME_LEFT: Duration = Duration::from_millis(60);

/// A server that admits every decision, once the test allows each reply.
struct HeldServer {
    port: u16,
    /// One for each decision that arrived.
    received: Receiver<()>,
    allow: Sender<()>,
    /// One for each reply that was written.
    written: Receiver<()>,
}

impl HeldServer {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (receive, received) = mpsc::channel();
        let (allow, allowed) = mpsc::channel();
        let (write, written) = mpsc::channel();
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            serve(&stream, &receive, &allowed, &write);
        });
        Self { port, received, allow, written }
    }

    fn settings(&self) -> RedisSettings {
        RedisSettings {
            servers: format!("redis://127.0.0.1:{}", self.port).parse().expect("a URL"),
            timeout: TIME_LEFT,
            key_prefix: String::new(),
            ca_certificate: None,
            client_certificate: None,
            samples_servers: false,
        }
    }

    /// Writes the reply to the decision that arrived; it is in the client's socket afterwards.
    fn reply(&self) {
        self.allow.send(()).expect("the server runs");
        self.written.recv().expect("the server runs");
    }
}

/// Serves commands until the connection ends.
fn serve(mut stream: &TcpStream, receive: &Sender<()>, allowed: &Receiver<()>, write: &Sender<()>) {
    let mut reader = BufReader::new(stream);
    while let Some(command) = read_command(&mut reader) {
        // A probe names an unknown script.
        let is_decision = command.first().is_some_and(|name| name == b"EVALSHA")
            && command.get(1).is_some_and(|script| !script.iter().all(|digit| *digit == b'0'));
        if !is_decision {
            stream.write_all(b"+OK\r\n").expect("a client");
            continue;
        }
        receive.send(()).expect("the test runs");
        if allowed.recv().is_err() {
            return;
        }
        // The time, and of one fixed window: admitted, its end and its count.
        let mut reply = Vec::new();
        [1_000_u32, 0].iter().for_each(|word| reply.extend(word.to_le_bytes()));
        reply.push(1);
        [3_600_u32, 1].iter().for_each(|word| reply.extend(word.to_le_bytes()));
        let head = format!("${}\r\n", reply.len());
        stream.write_all(&[head.as_bytes(), &reply, b"\r\n"].concat()).expect("a client");
        write.send(()).expect("the test runs");
    }
}

/// The next command and its arguments.
pub(crate) fn read_command(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let parts: usize = line.trim().strip_prefix('*')?.parse().ok()?;
    let mut command = Vec::new();
    for _ in 0..parts {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let length: usize = line.trim().strip_prefix('$')?.parse().ok()?;
        let mut part = vec![0; length + 2];
        reader.read_exact(&mut part).ok()?;
        part.truncate(length);
        command.push(part);
    }
    Some(command)
}

fn request() -> TagRequest {
    request_of("v", check(policy(Algorithm::FixedWindow, 9, 3_600), Hits::ONE))
}

#[tokio::test]
async fn a_reply_that_arrived_while_the_thread_was_delayed_is_used_after_the_deadline() {
    let server = HeldServer::start();
    let store = RedisStore::open(&server.settings()).expect("valid settings");
    assert!(store.connected().await);
    let mut delayed = 0;
    while delayed < 5 {
        let deadline = Instant::now() + TIME_LEFT;
        let decision = tokio::spawn({
            let store = store.clone();
            async move { store.decide_by(&request(), Some(deadline)).await }
        });
        while server.received.try_recv().is_err() {
            yield_now().await;
        }
        // On a busy machine the time may be over before.
        let is_in_time = Instant::now() < deadline;
        // Nothing else runs on this thread meanwhile.
        while Instant::now() < deadline + Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        server.reply();
        let decision = decision.await.expect("no panic");
        if is_in_time {
            assert!(decision.is_ok(), "{decision:?}");
            delayed += 1;
        }
    }
}

#[tokio::test]
async fn the_outcome_of_a_call_that_timed_out_follows_with_its_reply() {
    let server = HeldServer::start();
    let store = RedisStore::open(&server.settings()).expect("valid settings");
    assert!(store.connected().await);
    let error = store.decide_by(&request(), Some(Instant::now() + TIME_LEFT)).await.expect_err("no reply");
    let StoreError::Timeout(_, Some(reply)) = error else { panic!("{error:?}") };
    let (sender, outcome) = oneshot::channel();
    reply.on_arrival(move |outcome| sender.send(outcome).expect("the test runs"));
    server.received.recv().expect("the server runs");
    server.reply();
    let LateOutcome::Decided(verdicts) = outcome.await.expect("the reply arrives") else { panic!() };
    assert!(verdicts[0].1.admitted);
}
