//! Stores of several servers: Sentinel, Cluster, TLS to all of them.

mod migrations;
mod across_slots;
mod bus_partition;
mod cluster;
mod lying_nodes;
mod misbehaving_nodes;
mod outages;
mod resharding;
mod sentinel;
mod sentinel_disagreement;
pub(crate) mod tls;

use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::sync::{Mutex, atomic::AtomicUsize};

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tollgate::store::{key::CellKey, request::Check};

use crate::support::prelude::*;
use crate::support::redis::{guarded, major_version};

/// A store at `url` whose keys begin with `prefix`, once it is connected.
async fn connected(url: &str, prefix: &str) -> RedisStore {
    let settings = RedisSettings { key_prefix: prefix.into(), ..settings(url) };
    let store = open(&settings);
    let waited = tokio::time::timeout(Duration::from_secs(20), store.connected()).await;
    assert_eq!(waited, Ok(true), "{url} is not reached");
    store
}

/// A call for one counter that never denies.
fn one(name: &str, hits: Hits) -> TagRequest {
    call(name, &[(0, policy(Algorithm::FixedWindow, u32::MAX, 3_600), hits)])
}

/// A call for two cells of one tag.
fn two(name: &str) -> TagRequest {
    let mut call = one(name, Hits::ONE);
    let key = call.cells[0].key.clone().limit_override(None, Algorithm::FixedWindow, 3_600);
    let check = Check { descriptor: 1, ..call.cells[0].checks[0] };
    call.push(key, check);
    call
}

/// The slot of the counter of a name.
fn slot(name: &str) -> u16 {
    one(name, Hits::ONE).cells[0].key.slot()
}

/// Names whose counters are on a master's slots at first.
fn names_on(cluster: &Cluster, master: usize, begin: &str, count: usize) -> Vec<String> {
    let names = (0..).map(|number| format!("{begin}{number}"));
    names.filter(|name| cluster.master_of(slot(name)) == master).take(count).collect()
}

fn name_on(cluster: &Cluster, master: usize, begin: &str) -> String {
    names_on(cluster, master, begin, 1).remove(0)
}

fn open(settings: &RedisSettings) -> RedisStore {
    RedisStore::open(settings).expect("valid settings")
}

/// Charges one hit in a window that does not end.
async fn charge(store: &RedisStore, call: &TagRequest) -> Result<Verdict, StoreError> {
    let store = store.clone().at_time(at(0));
    store.decide(call).await.map(|verdicts| verdicts[0].1)
}

/// The number of hits in the counter of a name.
async fn used(store: &RedisStore, name: &str) -> u64 {
    charge(store, &one(name, Hits::Peek)).await.expect("an answer").used
}

/// Checks that the program decides on counters at `url`.
async fn program_decides(url: &str) {
    let arguments = ["--store", url, "--store-timeout", "5s", "--key-prefix", "program:"];
    let (_tollgate, mut client) = Tollgate::serving_one(&yearly(1), &arguments).await;
    for number in 0..20 {
        let value = number.to_string();
        assert!(client.passes("d", &[("k", &value)]).await);
        assert!(!client.passes("d", &[("k", &value)]).await);
    }
}

/// Calls, one after the other, until they are stopped.
#[derive(Debug)]
struct Requests {
    stop: CancellationToken,
    ended: JoinHandle<Vec<Result<(), StoreError>>>,
}

impl Requests {
    fn start(store: &RedisStore, name: &str) -> Self {
        let (stop, store, call) = (CancellationToken::new(), store.clone(), one(name, Hits::ONE));
        let stopped = stop.clone();
        let ended = tokio::spawn(async move {
            let mut results = Vec::new();
            while !stopped.is_cancelled() {
                let result = charge(&store, &call).await.map(drop);
                results.push(result);
                sleep(Duration::from_millis(2)).await;
            }
            results
        });
        Self { stop, ended }
    }

    async fn end(self) -> Vec<Result<(), StoreError>> {
        self.stop.cancel();
        self.ended.await.expect("no panic")
    }
}

/// Checks that every acknowledged charge is counted, except for at most this many that were lost with a master, and
/// that none is counted twice.
async fn assert_counted(store: &RedisStore, name: &str, results: &[Result<(), StoreError>], lost: u64) {
    let is_unknown = |result: &&Result<(), StoreError>| {
        matches!(result, Err(StoreError::Timeout(..) | StoreError::Disconnected(_)))
    };
    let answered = results.iter().filter(|result| result.is_ok()).count() as u64;
    let unknown = results.iter().filter(is_unknown).count() as u64;
    let counted = used(store, name).await;
    println!("{name}: {answered} answered, {unknown} unknown, {counted} counted");
    assert!(counted + lost >= answered, "{counted} of {answered} are counted");
    assert!(counted <= answered + unknown, "{counted} are counted, of {answered} and perhaps {unknown}");
}

/// Lets the calls go on until one succeeds that began after `promoted`; how long that took.
async fn recovered(store: &RedisStore, name: &str, promoted: Instant) -> Duration {
    let call = one(name, Hits::ONE);
    until("it does not recover", async || charge(store, &call).await.is_ok()).await;
    promoted.elapsed()
}
