//! Many idle connections, and clients that send requests and read no response.

use std::io::ErrorKind;

use super::*;
use crate::support::http2::frame;

/// HTTP/2 preface of a client, with settings that change nothing.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// With the setting that no stream has a window for a response.
const PREFACE_WITHOUT_WINDOW: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";

/// Requests that a stalled client sends at first: more than may be in flight on a connection.
const INITIAL_REQUESTS: u32 = 1_200;

const PATH: &[u8] = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Header block of a request, which adds nothing to the HPACK table.
pub(super) fn headers() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    let literal = |block: &mut Vec<u8>, name: &[u8], value: &[u8]| {
        block.extend_from_slice(name);
        block.push(u8::try_from(value.len()).expect("short"));
        block.extend_from_slice(value);
    };
    literal(&mut block, &[0x04], PATH);
    literal(&mut block, &[0x01], b"tollgate");
    literal(&mut block, &[0x0f, 0x10], b"application/grpc");
    literal(&mut block, &[0x00, 0x02, b't', b'e'], b"trailers");
    block
}

/// Frames of a request on a stream.
pub(super) fn request_frames(stream: u32, body: &Bytes) -> Vec<u8> {
    [frame(1, 4, stream, &headers()), frame(0, 1, stream, body)].concat()
}

pub(super) fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).expect("tollgate listens")
}

/// Idle connections, every other one after the preface.
fn idle(port: u16, count: usize) -> Vec<TcpStream> {
    let connected = |number: usize| {
        let mut stream = connect(port);
        if number.is_multiple_of(2) {
            stream.write_all(PREFACE).expect("there is room");
        }
        stream
    };
    (0..count).map(connected).collect()
}

/// Client that sends requests as long as its writes are accepted, and never reads.
struct StalledClient {
    stream: TcpStream,
    sent: u32,
    rest: Vec<u8>,
    is_open: bool,
}

impl StalledClient {
    fn open(port: u16, preface: &[u8]) -> Self {
        let stream = connect(port);
        stream.set_nonblocking(true).expect("a socket");
        Self { stream, sent: 0, rest: preface.to_vec(), is_open: true }
    }

    /// Writes a request, if all before it were written.
    fn send(&mut self, body: &Bytes) {
        while !self.rest.is_empty() && self.is_open {
            match self.stream.write(&self.rest) {
                Ok(length) => drop(self.rest.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_open = false,
            }
        }
        self.rest = request_frames(2 * self.sent + 1, body);
        self.sent += 1;
    }
}

/// Several such clients.
struct StalledClients {
    all: Vec<StalledClient>,
    body: Bytes,
}

impl StalledClients {
    /// Connects them, and sends the first requests of each in turn.
    fn connect(port: u16, count: usize, profile: &Profile) -> Self {
        let preface = |number: usize| if number.is_multiple_of(2) { PREFACE } else { PREFACE_WITHOUT_WINDOW };
        let all = (0..count).map(|number| StalledClient::open(port, preface(number))).collect();
        let mut clients = Self { all, body: for_names(&["stalled".to_owned()]).remove(0) };
        for _ in 0..INITIAL_REQUESTS {
            clients.send();
            // Ten thousand a second, which by itself delays no other request, or fewer on a shared machine.
            let pause = Duration::from_micros(if profile.is_timed() { 100 } else { 400 });
            thread::sleep(pause * u32::try_from(count).expect("few"));
        }
        clients
    }

    fn send(&mut self) {
        self.all.iter_mut().for_each(|client| client.send(&self.body));
    }

    /// Sends a few requests on each connection until stopped. Returns the number of requests, and of open
    /// connections.
    fn keep_sending(mut self, stop: &AtomicBool) -> (u32, usize) {
        while !stop.load(Ordering::Relaxed) {
            self.send();
            thread::sleep(Duration::from_millis(500));
        }
        let open = self.all.iter().filter(|client| client.is_open).count();
        (self.all.iter().map(|client| client.sent).sum(), open)
    }
}

pub(super) fn others_are_served(profile: &Profile) -> ReportRow {
    let (idle_count, stalled_count) = if profile.is_timed() { (1_000, 100) } else { (200, 10) };
    let redis = Redis::start();
    let harness = Harness::start(&redis.url(), profile, &names());
    let port = harness.tollgate.grpc_port;
    // As long as later, since tails are compared.
    thread::sleep(profile.before.max(profile.fault));
    let (memory, before) = (harness.tollgate.resident(), harness.load.now());
    let held = idle(port, idle_count);
    let clients = StalledClients::connect(port, stalled_count, profile);
    thread::sleep(profile.before);
    let stop = AtomicBool::new(false);
    let fault = harness.load.now();
    let (sent, open) = thread::scope(|scope| {
        let sender = scope.spawn(|| clients.keep_sending(&stop));
        thread::sleep(profile.fault);
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("no panic")
    });
    let healed = harness.load.now();
    let more = harness.tollgate.resident().saturating_sub(memory);
    drop(held);
    let samples = harness.end();
    let name = format!("{idle_count} idle connections, and {stalled_count} that send and do not read");
    let mut row = ReportRow::new(name, profile);
    // A worker that gets hardly any time sheds calls, with or without the others.
    let served = samples.between(fault, healed).count(|sample| !sample.is_error());
    row.must("others are served", format!("{served} while the clients do not read"), served > 0);
    let errors = samples.errors();
    row.timed("errors 0", format!("{errors:?}"), errors.is_empty());
    let before = samples.between(before.saturating_sub(profile.fault), before).p99();
    let during = samples.between(fault, healed).p99();
    let measured = format!("{} before, {} during", millis(before), millis(during));
    row.timed("p99 of the others <= 1.5 x", measured, during <= before.mul_f64(1.5));
    let least = INITIAL_REQUESTS * u32::try_from(stalled_count).expect("few") / 2;
    row.must("they send requests", format!("{sent} requests"), sent > least);
    row.note(format!("{open} of the stalled readers are still connected; RSS + {} MB", more >> 20));
    row
}

#[test]
fn idle_or_stalled_connections_do_not_hinder_others() {
    others_are_served(&Profile::SHORT).judge();
}
