//! Calls that their callers reset at once.

use std::io::Read as _;

use super::connections::{PREFACE, connect, headers, request_frames};
use super::*;
use crate::support::http2::{frame, reset};

const LIMIT: u32 = 1_000_000;

/// Calls of a flood; more than HTTP/2 tolerates if it reads them at once.
const CALLS: u32 = 10_000;

/// A connection on which calls are reset.
struct Flood {
    stream: TcpStream,
    next: u32,
}

impl Flood {
    fn open(port: u16) -> Self {
        let mut stream = connect(port);
        stream.write_all(PREFACE).expect("tollgate reads");
        Self { stream, next: 1 }
    }

    /// Sends calls, each as `call` makes it, followed by its reset. Returns once all were read.
    fn send(&mut self, call: impl Fn(u32) -> Vec<u8>) {
        let mut bytes = Vec::new();
        for _ in 0..CALLS {
            bytes.extend_from_slice(&call(self.next));
            bytes.extend_from_slice(&reset(self.next));
            self.next += 2;
        }
        bytes.extend_from_slice(&frame(6, 0, 0, b"all read"));
        self.stream.write_all(&bytes).expect("the connection stays open");
        self.await_acknowledgement();
    }

    /// Reads up to the acknowledgement of the ping.
    fn await_acknowledgement(&mut self) {
        loop {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header).expect("the connection stays open");
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; usize::try_from(length).expect("short")];
            self.stream.read_exact(&mut payload).expect("the connection stays open");
            assert_ne!(header[3], 7, "GOAWAY: {}", String::from_utf8_lossy(&payload));
            if (header[3], header[4]) == (6, 1) && payload == b"all read" {
                return;
            }
        }
    }
}

/// Hits that were charged, less the one that this charges.
async fn charged(tollgate: &Tollgate) -> u32 {
    let response =
        tollgate.client().await.call(request("d", &[&[("k", "flood")]])).await.expect("a response");
    LIMIT - 1 - response.statuses[0].limit_remaining
}

#[tokio::test]
async fn resets_of_calls_cost_no_decision() {
    let redis = Redis::start();
    let body = for_names(&["flood".to_owned()]).remove(0);
    for store in ["memory", &redis.url()] {
        // A fallback would count separately.
        let arguments = ["--store", store, "--store-timeout", "10s", "--workers", "1"];
        let tollgate = Tollgate::serving(&yearly(LIMIT), &arguments);
        let mut flood = Flood::open(tollgate.grpc_port);
        flood.send(|stream| frame(1, 4, stream, &headers()));
        assert_eq!(charged(&tollgate).await, 0, "{store}: calls without a message");
        flood.send(|stream| request_frames(stream, &body));
        // A call is decided if its reset is not read with the same read budget. One more than above was charged by then.
        let decided = charged(&tollgate).await - 1;
        assert!(decided <= CALLS / 50, "{store}: {decided} of {CALLS} whole calls");
    }
}
