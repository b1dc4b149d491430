//! A private Redis.

use std::os::unix::net::UnixStream;

use tollgate::store::redis::CommandKeys;

use super::{Process, prelude::*};

/// The commands that a user needs wherever Redis runs, as docs/guides/redis.md has them.
pub(crate) const COMMANDS: [&str; 27] = [
    "evalsha",
    "script|load",
    "time",
    "get",
    "mget",
    "set",
    "setrange",
    "del",
    "ping",
    "info",
    "pexpire",
    "pttl",
    "llen",
    "lindex",
    "lset",
    "rpush",
    "ltrim",
    "lrem",
    "zadd",
    "zcard",
    "zcount",
    "zmscore",
    "zrange",
    "zrangebyscore",
    "zrem",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// The additional commands for versions and records, except those of the subscription.
pub(crate) const RULES_COMMANDS: [&str; 10] =
    ["hset", "hget", "hmget", "hgetall", "hlen", "hexists", "hdel", "hincrby", "xadd", "xrevrange"];

/// Arguments of a server whose user `app` may do [`COMMANDS`] and some others with the keys under `guarded:`, and
/// nothing else.
pub(crate) fn guarded(password: &str, others: &[&str]) -> Vec<&'static str> {
    let allowed = COMMANDS.iter().chain(others).map(|command| format!("+{command}"));
    let fixed = ["--user", "app", "on", &format!(">{password}"), "~guarded:*", "resetchannels", "-@all"];
    // Servers keep their arguments for as long as the tests run.
    fixed.map(str::to_owned).into_iter().chain(allowed).map(|argument| &*argument.leak()).collect()
}

/// The server under test: Debian's Redis, or another one that `TEST_REDIS_SERVER` names.
fn program() -> String {
    env::var("TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// A Redis server of one test's own; it ends with the test and keeps nothing.
#[derive(Debug)]
pub(crate) struct Redis {
    process: Process,
    directory: TempDir,
    port: u16,
    arguments: Vec<String>,
}

/// A connection to a server, which may be about to change its role and so close those that are new.
fn connect_to(url: &str) -> redis::Connection {
    let client = redis::Client::open(url).expect("a valid URL");
    find("the server does not answer", || client.get_connection().ok())
}

/// The hits that a counter has which is alone in its cell, in a fixed window.
pub(crate) fn hits(cell: &[u8]) -> u32 {
    // The cell's format, number of records and end, one id, the window's end, and the hits.
    u32::from_le_bytes(cell[1 + 2 + 4 + 6 + 4..].try_into().expect("one record"))
}

/// Starts a server and waits until it answers.
fn run(port: u16, arguments: &[String], directory: &TempDir) -> Process {
    let child = Command::new(program())
        .args(arguments)
        .args(["--bind", "127.0.0.1", "--loglevel", "warning"])
        .args(["--unixsocket", "redis.sock", "--port", &port.to_string()])
        .current_dir(directory)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed; `tests/run.sh` installs it");
    let mut process = Process::of(child, Some(directory.path()));
    // A private socket, on which no other server can answer; it opens after the port.
    let socket = directory.path().join("redis.sock");
    let deadline = Instant::now() + Duration::from_secs(30);
    while UnixStream::connect(&socket).is_err() {
        assert!(process.0.try_wait().expect("it was started").is_none(), "redis-server ended");
        assert!(Instant::now() < deadline, "redis-server does not answer");
        thread::sleep(Duration::from_millis(5));
    }
    process
}

impl Redis {
    /// Starts a server with additional arguments and waits until it answers.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_on(free_port(), arguments)
    }

    /// Starts a server whose user `app`, with the password `word`, may run all of [`COMMANDS`] except `command`, on every key.
    /// Returns it and its URL for that user.
    pub(crate) fn lacking(command: &str) -> (Self, String) {
        let allowed = COMMANDS.iter().filter(|name| **name != command).map(|name| format!("+{name}"));
        let user = ["--user", "app", "on", ">word", "~*", "resetchannels", "-@all"].map(str::to_owned);
        let arguments: Vec<String> = user.into_iter().chain(allowed).collect();
        let server = Self::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let url = format!("redis://app:word@127.0.0.1:{}", server.port());
        (server, url)
    }

    /// Starts a server on a port that was got before.
    pub(crate) fn start_on(port: u16, arguments: &[&str]) -> Self {
        // A replica need not wait for others to come.
        let mut all = vec!["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"];
        all.extend(arguments);
        Self::launch(port, &all, tempfile::tempdir().expect("a temporary directory"))
    }

    /// Starts a sentinel with a configuration of its own.
    pub(crate) fn start_sentinel(port: u16, configuration: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("sentinel.conf"), configuration).expect("writable");
        Self::launch(port, &["sentinel.conf", "--sentinel"], directory)
    }

    fn launch(port: u16, arguments: &[&str], directory: TempDir) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let process = run(port, &arguments, &directory);
        Self { process, directory, port, arguments }
    }

    /// Kills the server and starts it again, where it was and with what it keeps in its directory, after `pause`.
    pub(crate) fn restart_after(&mut self, pause: Duration) {
        self.process.0.kill().expect("it runs");
        self.process.0.wait().expect("it was started");
        // Its socket stays where it was, and is not to be taken for the new one's.
        let _ = fs::remove_file(self.directory.path().join("redis.sock"));
        thread::sleep(pause);
        self.process = run(self.port, &self.arguments, &self.directory);
    }

    /// Starts a plain server.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Sends the server a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Processor time that it has used.
    pub(crate) fn processor_time(&self) -> Duration {
        self.process.processor_time()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.directory.path().join("redis.sock").display())
    }

    /// A connection for looking at the server.
    pub(crate) fn connect(&self) -> redis::Connection {
        connect_to(&self.url())
    }

    /// A connection of a user for looking at the server, whatever it demands of those that come by TCP.
    pub(crate) fn connect_as(&self, user: &str, password: &str) -> redis::Connection {
        let url = match password {
            "" => self.unix_url(),
            password => format!("{}?user={user}&pass={password}", self.unix_url()),
        };
        connect_to(&url)
    }

    /// A store on this server, to be used on the current runtime.
    /// The keys of the commands of a history: of every second one across slots, where the server permits that.
    pub(crate) fn command_keys(&self, number: u64) -> CommandKeys {
        let is_across = number % 2 == 1 && major_version(&mut self.connect()) >= 7;
        if is_across { CommandKeys::AnySlotOfNode } else { CommandKeys::NoSlots }
    }

    /// A figure of a section of its `INFO`.
    pub(crate) fn figure(&self, section: &str, name: &str) -> f64 {
        let text: String = cmd("INFO").arg(section).query(&mut self.connect()).expect("a reply");
        let figure = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        figure.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse().expect("a number")
    }

    /// Starts a server, and a store on it.
    pub(crate) fn start_store() -> (Self, RedisStore) {
        let redis = Self::start();
        let store = redis.store();
        (redis, store)
    }

    pub(crate) fn store(&self) -> RedisStore {
        RedisStore::open(&settings(&self.url())).expect("valid settings")
    }
}

/// Settings for a store under test. The time-out is long, so that a busy machine fails no test.
pub(crate) fn settings(url: &str) -> RedisSettings {
    RedisSettings {
        servers: url.parse().expect("a valid URL"),
        timeout: Duration::from_secs(5),
        key_prefix: String::new(),
        ca_certificate: None,
        client_certificate: None,
        samples_servers: true,
    }
}

/// The major version of a server, or that of the Redis whose functions it has.
pub(crate) fn major_version(server: &mut redis::Connection) -> u32 {
    let facts: String = cmd("INFO").arg("server").query(server).expect("the server reports");
    let version = facts.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("a version");
    version.split('.').next().and_then(|major| major.parse().ok()).expect("a number")
}
