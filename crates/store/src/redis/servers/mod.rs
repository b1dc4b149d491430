//! Servers to which this process has connections, by name: the state of these connections, and what the servers report of
//! themselves.
//!
//! A server is listed while something of it is live: a connection, a circuit breaker, or the task that samples it (`info`). The
//! number of servers is bounded by the topology: those of the slot table, and a few that redirections name.

mod samples;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{collections::BTreeMap, fmt};

use parking_lot::Mutex;
use tollgate_metrics::{Computed, Counter, Declared, Page};

use self::samples::Samples;
pub(super) use self::samples::{Due, Memory, NoReport, REPORTED, ReplicaLag, Replication, Report};

/// Servers with something live.
static SERVERS: Mutex<BTreeMap<Arc<str>, Entry>> = Mutex::new(BTreeMap::new());

/// Connections and samples of a server.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Number of [`Server`] values of this name.
    handles: usize,
    /// Connections that were not established before.
    pub(super) connecting: usize,
    /// Connections that are established.
    pub(super) up: usize,
    /// Connections that were lost, or failed to connect.
    pub(super) down: usize,
    pub(super) open_breakers: usize,
    pub(super) samples: Samples,
}

fn change(count: &mut usize, by: isize) {
    *count = count.saturating_add_signed(by);
}

/// A server, listed until this is dropped. Its name is an address, or that of a master of Sentinel.
#[derive(Debug)]
pub(super) struct Server(Arc<str>);

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Server {
    /// Lists the server of this name.
    pub(super) fn new(name: &str) -> Arc<Self> {
        let name: Arc<str> = name.into();
        let mut servers = SERVERS.lock();
        let entry = servers.entry(Arc::clone(&name)).or_default();
        change(&mut entry.handles, 1);
        Arc::new(Self(name))
    }

    pub(super) fn update<T>(&self, update: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        SERVERS.lock().get_mut(&self.0).map(update)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut servers = SERVERS.lock();
        if let Some(entry) = servers.get_mut(&self.0) {
            change(&mut entry.handles, -1);
            if entry.handles == 0 {
                servers.remove(&self.0);
            }
        }
    }
}

/// A worker's connection to a server, or its open circuit breaker, counted in the server's entry until this is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    server: Arc<Server>,
    count: fn(&mut Entry) -> &mut usize,
}

impl Counted {
    pub(super) fn new(server: Arc<Server>, count: fn(&mut Entry) -> &mut usize) -> Self {
        server.update(|entry| change(count(entry), 1));
        Self { server, count }
    }

    /// Moves it to another count.
    pub(super) fn set(&mut self, count: fn(&mut Entry) -> &mut usize) {
        let former = std::mem::replace(&mut self.count, count);
        self.server.update(|entry| {
            change(former(entry), -1);
            change(count(entry), 1);
        });
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.server.update(|entry| change((self.count)(entry), -1));
    }
}

/// Number of open circuit breakers.
pub fn breakers_open() -> u64 {
    SERVERS.lock().values().map(|entry| entry.open_breakers as u64).fold(0, u64::saturating_add)
}

/// Whether this process uses Redis: without a server, the metrics of connections are zero then, and not absent.
static IS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Exports the metrics of connections from now on, though there may be none.
pub(super) fn export() {
    IS_IN_USE.store(true, Ordering::Relaxed);
    BREAKERS_OPENED.export();
}

pub(super) static CONNECTIONS: Computed<1> = Computed::gauge(
    "tollgate_redis_connections",
    &["state", "server"],
    "Connections to Redis servers by state and server.",
    |[declared], page| {
        by_server(declared, page, |entry, sample| {
            let counts = [("connecting", entry.connecting), ("up", entry.up), ("down", entry.down)];
            for (name, count) in counts {
                sample(&[name], count);
            }
        });
    },
);

pub(super) static BREAKERS_OPENED: Counter =
    Counter::new("tollgate_redis_breaker_opened_total", "Times a Redis server's circuit breaker opened.");

pub(super) static BREAKERS_OPEN: Computed<1> = Computed::gauge(
    "tollgate_redis_breakers_open",
    &["server"],
    "Open circuit breakers of Redis servers by server.",
    |[declared], page| by_server(declared, page, |entry, sample| sample(&[], entry.open_breakers)),
);

/// Writes samples of every server, whose name is the last label; an unnamed one stands for no servers.
fn by_server(declared: &Declared, page: &mut Page, write: impl Fn(&Entry, &mut dyn FnMut(&[&str], usize))) {
    let servers = SERVERS.lock();
    if servers.is_empty() && !IS_IN_USE.load(Ordering::Relaxed) {
        return;
    }
    page.begin(declared);
    for (name, entry) in &*servers {
        write(entry, &mut |labels, value| page.sample(declared, &[labels, &[&**name]].concat(), value));
    }
    if servers.is_empty() {
        write(&Entry::default(), &mut |labels, value| page.sample(declared, labels, value));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_metrics::Metric;

    use super::*;

    /// Samples of a metric that name the server.
    fn shown(metric: &dyn Metric, server: &str) -> Vec<String> {
        let mut page = Page::default();
        metric.write(&mut page);
        let label = format!("server=\"{server}\"");
        page.into_text().lines().filter(|line| line.contains(&label)).map(str::to_owned).collect()
    }

    #[test]
    fn a_server_is_listed_while_something_of_it_is_live() {
        let name = "a_server_that_leaves:1";
        let is_listed = || SERVERS.lock().contains_key(name);
        let (first, second) = (Server::new(name), Server::new(name));
        let connection = Counted::new(Arc::clone(&first), |entry| &mut entry.connecting);
        drop(first);
        assert!(is_listed());
        drop(second);
        assert!(is_listed(), "its connection is live");
        drop(connection);
        assert!(!is_listed());
        assert_eq!(shown(&CONNECTIONS, name), Vec::<String>::new());
    }

    #[test]
    fn connections_and_open_breakers_have_their_server() {
        let (one, other) = ("one.example:6379", "other.example:6379");
        let (server, quiet) = (Server::new(one), Server::new(other));
        let mut connections =
            [0, 1].map(|_| Counted::new(Arc::clone(&server), |entry| &mut entry.connecting));
        connections[0].set(|entry| &mut entry.up);
        connections[1].set(|entry| &mut entry.up);
        connections[1].set(|entry| &mut entry.down);
        let breaker = Counted::new(Arc::clone(&server), |entry| &mut entry.open_breakers);
        let lines = |server: &str, [connecting, up, down]: [usize; 3]| {
            [("connecting", connecting), ("up", up), ("down", down)].map(|(state, count)| {
                format!("tollgate_redis_connections{{state=\"{state}\",server=\"{server}\"}} {count}")
            })
        };
        assert_eq!(shown(&CONNECTIONS, one), lines(one, [0, 1, 1]));
        assert_eq!(shown(&CONNECTIONS, other), lines(other, [0, 0, 0]));
        let open = |server: &str, count| {
            vec![format!("tollgate_redis_breakers_open{{server=\"{server}\"}} {count}")]
        };
        assert_eq!(shown(&BREAKERS_OPEN, one), open(one, 1));
        assert_eq!(shown(&BREAKERS_OPEN, other), open(other, 0));
        drop(breaker);
        drop(connections);
        assert_eq!(shown(&BREAKERS_OPEN, one), open(one, 0));
        assert_eq!(shown(&CONNECTIONS, one), lines(one, [0, 0, 0]));
        drop((server, quiet));
    }
}
