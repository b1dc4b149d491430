//! Real servers and other means of the tests.

pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod collector;
pub(crate) mod envoy;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod network;
pub(crate) mod prometheus;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod rust_tokens;
pub(crate) mod sentinel;
pub(crate) mod stores;
pub(crate) mod timing;
pub(crate) mod tollgate;
pub(crate) mod upstream;
#[cfg(feature = "regions")]
pub(crate) mod wan;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io::Write as _, thread};

use tokio::time::sleep;

/// The imports of most tests.
pub(crate) mod prelude {
    pub(crate) use std::collections::{BTreeMap, BTreeSet};
    pub(crate) use std::path::{Path, PathBuf};
    pub(crate) use std::process::{Command, Stdio};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use std::time::{Duration, Instant};
    pub(crate) use std::{env, fs, io::Write as _, net::TcpStream, num::NonZeroU64, thread};

    pub(crate) use redis::cmd;
    pub(crate) use serde_json::{Value, json};
    pub(crate) use tempfile::TempDir;
    pub(crate) use tokio::{task::JoinSet, time::sleep};
    pub(crate) use tollgate::algorithm::{Algorithm, Charging, Parameters, Policy, Verdict};
    pub(crate) use tollgate::descriptor::{Entry, Hits};
    pub(crate) use tollgate::proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response::Code,
    };
    pub(crate) use tollgate::quota::{Quota, Window};
    pub(crate) use tollgate::store::redis::RedisSettings;
    pub(crate) use tollgate::store::request::{TagRequest, Veto};
    pub(crate) use tollgate::store::{RedisStore, StoreError};
    pub(crate) use tollgate::{RecordId, control::Control, lease::LeaseId};

    pub(crate) use crate::support::envoy::{Bootstrap, Envoy};
    pub(crate) use crate::support::redis::{Redis, settings};
    pub(crate) use crate::support::stores::{Subject, at, call, policy};
    pub(crate) use crate::support::tollgate::{
        Client, Tollgate, UNREACHED, command, lease_of, project, request, rules, tool, yearly,
    };
    pub(crate) use crate::support::{
        Ended, certificates::Authority, cluster::Cluster, ended, ended_with, find, found, free_port, http,
        output_of, read_until, until, wait,
    };
}

/// Time that a busy machine takes at the longest for what an idle one does at once.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until it is so, and returns how long that took. Fails with the complaint.
pub(crate) fn wait(complaint: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    find(complaint, || is_so().then_some(()));
    begun.elapsed()
}

/// Waits until something is found. Fails with the complaint.
pub(crate) fn find<T>(complaint: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{complaint}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits while other tasks go on until it is so, and returns how long that took. Fails with the complaint.
pub(crate) async fn until(complaint: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    found(complaint, async || is_so().await.then_some(())).await;
    begun.elapsed()
}

/// Waits while other tasks go on until something is found. Fails with the complaint.
pub(crate) async fn found<T>(complaint: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{complaint}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Reads while other tasks go on until the result is right, and returns it.
pub(crate) async fn read_until<T: std::fmt::Debug>(
    mut read: impl AsyncFnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let result = read().await;
        if is_right(&result) {
            return result;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "not as expected: {result:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The ports that tests use: with those of clusters' buses, which are 10,000 above, they end below the range that
/// systems usually give out by themselves.
const PORTS: std::ops::Range<u16> = 10_100..20_100;

/// A port that nothing listens on and that no other test is given, nor is anything on the port 10,000 above.
pub(crate) fn free_port() -> u16 {
    // Runs on one machine begin far from each other.
    static BEGIN: LazyLock<u32> = LazyLock::new(|| process::id().wrapping_mul(2_654_435_761) >> 8);
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    loop {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(given < count, "out of ports");
        let port = PORTS.start + u16::try_from((*BEGIN + given) % count).expect("below the count");
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

/// The processes to end with this one, however its end comes: a file for each, named by its id, with the directory to
/// remove.
struct Watched {
    files: PathBuf,
    /// Waits for the end of its input, which this process holds.
    _watcher: Child,
}

static WATCHED: LazyLock<Watched> = LazyLock::new(|| {
    let script = r#"trap "" HUP INT TERM; cat >/dev/null
        for file in "$1"/*; do
            [ -e "$file" ] || continue
            kill -KILL "${file##*/}"; directory=$(cat "$file"); [ -z "$directory" ] || rm -rf "$directory"
        done
        rm -rf "$1""#;
    let files = tempfile::tempdir().expect("a temporary directory").keep();
    let mut watcher = Command::new("sh");
    watcher.args(["-c", script, "watcher"]).arg(&files).stdin(Stdio::piped());
    let watcher = watcher.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
    Watched { files, _watcher: watcher }
});

/// The exit code of a program, and the texts that it wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self { code: output.status.code(), stdout, stderr }
    }
}

/// Runs a program to its end.
pub(crate) fn ended(command: &mut Command) -> Ended {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")).into()
}

/// Runs a program that reads an input to its end.
pub(crate) fn ended_with(command: &mut Command, input: impl Into<Vec<u8>>) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (mut pipe, input) = (child.stdin.take().expect("piped"), input.into());
    let feed = thread::spawn(move || pipe.write_all(&input));
    let ended: Ended = child.wait_with_output().expect("it was started").into();
    let fed = feed.join().expect("no panic");
    assert!(fed.is_ok() || ended.code != Some(0), "{fed:?}: {ended:?}");
    ended
}

/// The output of a program, which has to succeed.
pub(crate) fn output_of(command: &mut Command) -> String {
    let Ended { code, stdout, stderr } = ended(command);
    assert_eq!(code, Some(0), "{command:?}:\n{stdout}{stderr}");
    assert!(!stdout.contains(char::REPLACEMENT_CHARACTER), "{command:?}: no UTF-8: {stdout}");
    stdout
}

/// A process that ends with its test, and with this process.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Looks after a process that uses a temporary directory.
    pub(crate) fn of(child: Child, directory: Option<&Path>) -> Self {
        let directory = directory.map(|path| path.display().to_string());
        fs::write(WATCHED.files.join(child.id().to_string()), directory.unwrap_or_default())
            .expect("writable");
        Self(child)
    }

    /// Processor time that it has used, in user and in kernel mode.
    pub(crate) fn processor_time(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it runs");
        let fields = text.rsplit_once(')').expect("a name").1;
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum();
        // A tick is 10 ms on Linux, whatever the kernel's own.
        Duration::from_millis(ticks * 10)
    }

    /// Sends a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }
}

/// Sends a process a signal, by its name without `SIG`.
pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status();
    assert!(status.expect("kill is installed").success());
}

impl Drop for Process {
    fn drop(&mut self) {
        // First, for the id may be another's soon.
        let _ = fs::remove_file(WATCHED.files.join(self.0.id().to_string()));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
