//! Receiver of a webhook, which fails as often as a test wants.

use std::io::{BufRead as _, BufReader, Read as _};
use std::{net::TcpListener, sync::Mutex};

use super::*;

/// A request that the receiver got.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    /// In lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) path: String,
    pub(super) body: String,
    /// Whether it was accepted.
    pub(super) is_accepted: bool,
}

/// Receiver on a port of its own, until the process ends.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) port: u16,
    received: Arc<Mutex<Vec<Delivery>>>,
}

impl Receiver {
    /// Accepts the requests whose number, from 0, this function accepts.
    pub(super) fn start(accepts: impl Fn(usize) -> bool + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let received: Arc<Mutex<Vec<Delivery>>> = Arc::default();
        let shared = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(request) = read(&stream) else { continue };
                let mut received = shared.lock().expect("not poisoned");
                let is_accepted = accepts(received.len());
                received.push(Delivery { is_accepted, ..request });
                drop(received);
                let status = if is_accepted { "204 No Content" } else { "503 Service Unavailable" };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                // The client may have closed the connection; then it sends again.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { port, received }
    }

    pub(super) fn received(&self) -> Vec<Delivery> {
        self.received.lock().expect("not poisoned").clone()
    }
}

fn read(stream: &TcpStream) -> Option<Delivery> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Delivery { headers, path, body: String::from_utf8(body).ok()?, is_accepted: false })
}
