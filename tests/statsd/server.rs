//! A StatsD server that reads what it is sent.

use std::io::{ErrorKind, Read as _};
use std::thread::{self, JoinHandle};
use std::{net::TcpListener, sync::Mutex};

use super::*;

/// The transport to a server.
pub(super) enum Way {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Tcp(TcpListener, Vec<(TcpStream, Vec<u8>)>),
}

/// A StatsD server that adds up what it is sent, until it is dropped.
pub(super) struct Server {
    pub(super) url: String,
    received: Arc<Mutex<Received>>,
    is_ending: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// The received data.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    /// Bytes of each datagram.
    pub(super) packets: Vec<usize>,
    pub(super) connections: usize,
    pub(super) lines: Vec<Line>,
}

/// A line of StatsD.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    name: String,
    tags: Vec<(String, String)>,
    pub(super) value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Counter(u64),
    Gauge(u64),
    Timer { milliseconds: f64, times: u64 },
}

impl Server {
    pub(super) fn udp() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        let url = format!("udp://{}", socket.local_addr().expect("a port"));
        Self::begin(url, Way::Udp(socket))
    }

    pub(super) fn unix(directory: &Path) -> Self {
        let path = directory.join("statsd.socket");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        Self::begin(format!("unix://{}", path.display()), Way::Unix(socket))
    }

    pub(super) fn tcp(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        Self::begin(format!("tcp://127.0.0.1:{port}"), Way::Tcp(listener, Vec::new()))
    }

    pub(super) fn begin(url: String, mut way: Way) -> Self {
        let (received, is_ending) = (Arc::<Mutex<Received>>::default(), Arc::<AtomicBool>::default());
        let reader = thread::spawn({
            let (received, is_ending) = (Arc::clone(&received), Arc::clone(&is_ending));
            move || {
                loop {
                    // Read first, so that the counts sent before are read.
                    let is_last = is_ending.load(Ordering::Acquire);
                    way.read(&mut received.lock().expect("no panic"));
                    if is_last {
                        return;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Self { url, received, is_ending, reader: Some(reader) }
    }

    pub(super) fn port(&self) -> &str {
        self.url.rsplit_once(':').expect("a port").1
    }

    /// The sums so far, by name and tags.
    pub(super) fn sums(&self) -> BTreeMap<String, u64> {
        self.received.lock().expect("lines as they should be").sums()
    }

    /// Waits until something was received.
    pub(super) fn wait_for(&self, name: &str, sum: u64) {
        self.wait_until(|sums| sums.get(name) == Some(&sum));
    }

    /// Waits until the received sums are as expected.
    pub(super) fn wait_until(&self, is_there: impl Fn(&BTreeMap<String, u64>) -> bool) {
        wait("the sums do not come", || is_there(&self.sums()));
    }

    /// Reads what is there, and ends.
    pub(super) fn end(mut self) -> Received {
        self.is_ending.store(true, Ordering::Release);
        self.reader.take().expect("it was begun").join().expect("lines as they should be");
        self.received.lock().expect("no panic").clone()
    }
}

impl Way {
    fn read(&mut self, received: &mut Received) {
        let mut buffer = [0; 1 << 16];
        match self {
            Self::Udp(socket) => {
                while let Ok(length) = socket.recv(&mut buffer) {
                    received.datagram(&buffer[..length], 1_432);
                }
            }
            Self::Unix(socket) => {
                while let Ok(length) = socket.recv(&mut buffer) {
                    received.datagram(&buffer[..length], 8 << 10);
                }
            }
            Self::Tcp(listener, connections) => {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket");
                    received.connections += 1;
                    connections.push((stream, Vec::new()));
                }
                for (stream, text) in connections {
                    received.stream(stream, text);
                }
            }
        }
    }
}

impl Received {
    fn datagram(&mut self, packet: &[u8], most: usize) {
        assert!(packet.len() <= most, "{} bytes", packet.len());
        self.packets.push(packet.len());
        let text = str::from_utf8(packet).expect("a text");
        self.lines.extend(text.split('\n').map(Line::parse));
    }

    fn stream(&mut self, stream: &mut TcpStream, text: &mut Vec<u8>) {
        match stream.read_to_end(text) {
            Ok(_) => assert!(text.is_empty() || text.ends_with(b"\n"), "half a line at the end"),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset),
                    "{error}"
                );
            }
        }
        let ends = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = text.drain(..ends).collect();
        self.lines.extend(str::from_utf8(&whole).expect("a text").lines().map(Line::parse));
    }

    pub(super) fn sums(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for Line { name, tags, value } in &self.lines {
            let tags: Vec<_> = tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            let name = if tags.is_empty() { name.clone() } else { format!("{name}#{}", tags.join(",")) };
            let sum = sums.entry(name).or_default();
            match value {
                Value::Counter(count) => *sum += count,
                Value::Timer { times, .. } => *sum += times,
                Value::Gauge(value) => *sum = *value,
            }
        }
        sums
    }
}

impl Line {
    /// Reads a line as StatsD has it, with the tags of either form.
    pub(super) fn parse(line: &str) -> Self {
        let bad = |what: &str| -> ! { panic!("{what}: {line:?}") };
        let is_clean =
            |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control() || ":|".contains(c));
        let (name, rest) = line.split_once(':').unwrap_or_else(|| bad("no value"));
        let mut parts = rest.split('|');
        let (number, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (mut rate, mut tags) = (None, Vec::new());
        for part in parts {
            match part.split_at_checked(1) {
                Some(("@", text)) if rate.is_none() && tags.is_empty() => {
                    rate = Some(text.parse::<f64>().unwrap_or_else(|_| bad("no rate")));
                }
                Some(("#", text)) if tags.is_empty() => {
                    let pair = |tag: &str| tag.split_once(':').map(|(key, value)| (key.into(), value.into()));
                    tags = text.split(',').map(|tag| pair(tag).unwrap_or_else(|| bad("no tag"))).collect();
                }
                _ => bad("no part"),
            }
        }
        let mut names = name.split(".__");
        let name = names.next().unwrap_or_default().to_owned();
        for tag in names {
            let (key, value) = tag.split_once('=').unwrap_or_else(|| bad("no tag"));
            tags.push((key.to_owned(), value.to_owned()));
        }
        if !is_clean(&name) || !tags.iter().all(|(key, value)| is_clean(key) && is_clean(value)) {
            bad("a bad name");
        }
        let whole = || number.parse::<u64>().unwrap_or_else(|_| bad("no whole number"));
        let value = match (kind, rate) {
            ("c", None) => {
                Value::Counter(Some(whole()).filter(|count| *count > 0).unwrap_or_else(|| bad("zero")))
            }
            ("g", None) => Value::Gauge(whole()),
            ("ms", rate) => {
                assert!(rate.is_none_or(|rate| rate > 0.0 && rate < 1.0), "{line}");
                let milliseconds = number.parse::<f64>().unwrap_or_else(|_| bad("no number"));
                // As servers do it that round down.
                Value::Timer { milliseconds, times: rate.map_or(1.0, f64::recip) as u64 }
            }
            _ => bad("no such kind"),
        };
        Self { name, tags, value }
    }
}
