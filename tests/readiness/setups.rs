//! Set-ups of Redis in which it cannot decide, and their mending.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread::{self, JoinHandle};

use super::*;
use crate::{support::redis::COMMANDS, topologies::tls::Certificates};

/// Runs a command as the default user.
fn run(redis: &Redis, password: &str, words: &[&str]) {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]).exec(&mut redis.connect_as("default", password)).expect("done");
}

/// An instance names the cause, degrades, and is ready after the mending, whose server is returned.
async fn mended<T>(instance: Instance, cause: &str, remedy: &str, mend: impl FnOnce() -> T) -> T {
    instance.names(cause, remedy);
    instance.degrades().await;
    let server = mend();
    instance.is_ready_once_mended(cause).await;
    server
}

/// With a server that is replaced by another one on its port.
async fn replaced(wrong: Redis, scheme: &str, rest: &str, [cause, remedy]: [&str; 2], right: &[&str]) {
    let port = wrong.port();
    let instance = Instance::start(&format!("{scheme}://127.0.0.1:{port}{rest}"), &[]);
    mended(instance, cause, remedy, || {
        drop(wrong);
        Redis::start_on(port, right)
    })
    .await;
}

/// An instance with a login is ready once a command, by a user with a password, has mended a server.
async fn configured(redis: &Redis, login: &str, [cause, remedy]: [&str; 2], password: &str, mend: &str) {
    let instance = Instance::start(&format!("redis://{login}127.0.0.1:{}", redis.port()), &[]);
    let words: Vec<&str> = mend.split(' ').collect();
    mended(instance, cause, remedy, || run(redis, password, &words)).await;
}

#[tokio::test]
async fn passwords_that_differ() {
    let redis = Redis::start_with(&["--requirepass", "word"]);
    let names = ["NOAUTH Authentication required", "set the password"];
    configured(&redis, "", names, "word", "CONFIG SET requirepass ").await;
    let redis = Redis::start_with(&["--requirepass", "another"]);
    let names = ["WRONGPASS invalid username-password pair", "correct the user"];
    configured(&redis, ":word@", names, "another", "CONFIG SET requirepass word").await;
    let names = ["without any password configured", "the server has no password"];
    configured(&Redis::start(), ":word@", names, "", "CONFIG SET requirepass word").await;
}

#[tokio::test]
async fn a_missing_permission() {
    for command in ["evalsha", "time", "get", "set"] {
        let (redis, url) = Redis::lacking(command);
        let instance = Instance::start(&url, &[]);
        let mend = || run(&redis, "", &["ACL", "SETUSER", "app", &format!("+{command}")]);
        mended(instance, &format!("run the '{command}' command"), "permit the user", mend).await;
    }
}

#[tokio::test]
async fn keys_that_the_user_may_not_use() {
    let allowed = COMMANDS.map(|name| format!("+{name}"));
    let user = ["--user", "app", "on", ">word", "~other:*", "resetchannels", "-@all"].into_iter();
    let redis = Redis::start_with(&user.chain(allowed.iter().map(String::as_str)).collect::<Vec<_>>());
    let names = ["NOPERM this user has no permissions to access", "permit the user"];
    configured(&redis, "app:word@", names, "", "ACL SETUSER app ~*").await;
}

#[tokio::test]
async fn servers_that_take_no_writes() {
    let master = Redis::start();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let names = ["READONLY You can't write", "the server is a replica"];
    configured(&replica, "", names, "", "REPLICAOF NO ONE").await;
    let full = Redis::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let names = ["OOM command not allowed", "raise maxmemory"];
    configured(&full, "", names, "", "CONFIG SET maxmemory 0").await;
    let alone = Redis::start_with(&["--min-replicas-to-write", "1"]);
    let names = ["NOREPLICAS Not enough", "connect the replicas"];
    configured(&alone, "", names, "", "CONFIG SET min-replicas-to-write 0").await;
}

/// A node on a port that has all slots of a cluster.
fn node(port: u16) -> Redis {
    let redis = Redis::start_on(port, &["--cluster-enabled", "yes"]);
    run(&redis, "", &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    redis
}

#[tokio::test]
async fn a_node_of_a_cluster_as_the_server() {
    let wrong = node(free_port());
    let port = wrong.port();
    let instance = Instance::start(&wrong.url(), &[]);
    // Calls on one of its slots succeed.
    instance.names("CROSSSLOT", "redis+cluster://");
    drop(wrong);
    let _right = Redis::start_on(port, &[]);
    instance.is_ready_once_mended("CROSSSLOT").await;
}

#[tokio::test]
async fn a_server_as_a_cluster() {
    let wrong = Redis::start();
    let port = wrong.port();
    let instance = Instance::start(&format!("redis+cluster://127.0.0.1:{port}"), &[]);
    mended(instance, "cluster support disabled", "REDIS_TYPE=SINGLE", || {
        drop(wrong);
        node(port)
    })
    .await;
}

#[tokio::test]
async fn a_sentinel_as_the_server() {
    let wrong = Redis::start_sentinel(free_port(), "sentinel monitor main 127.0.0.1 1 1\n");
    replaced(wrong, "redis", "", ["unknown command 'EVALSHA'", "redis+sentinel://"], &[]).await;
}

#[tokio::test]
async fn a_server_as_a_sentinel() {
    let wrong = Redis::start();
    let (port, master) = (wrong.port(), Redis::start());
    let instance = Instance::start(&format!("redis+sentinel://127.0.0.1:{port}/main"), &[]);
    mended(instance, "unknown command 'SENTINEL'", "the server is no sentinel", || {
        drop(wrong);
        Redis::start_sentinel(port, &format!("sentinel monitor main 127.0.0.1 {} 1\n", master.port()))
    })
    .await;
}

#[tokio::test]
async fn a_sentinel_without_its_login_and_with_another_master() {
    let master = Redis::start();
    let lines = format!("requirepass word\nsentinel monitor other 127.0.0.1 {} 1\n", master.port());
    let sentinel = Redis::start_sentinel(free_port(), &lines);
    let instance = Instance::start(&format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port()), &[]);
    instance.names("NOAUTH Authentication required", "REDIS_SENTINEL_AUTH");
    run(&sentinel, "word", &["ACL", "SETUSER", "default", "nopass"]);
    let port = master.port().to_string();
    let mend = || run(&sentinel, "", &["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "1"]);
    mended(instance, "no master named main", "set the master's name", mend).await;
}

#[tokio::test]
async fn tls_to_a_plain_port_and_the_reverse() {
    let certificates = Certificates::new();
    let (wrong, ca) = (Redis::start(), certificates.path("ca.pem").display().to_string());
    let port = wrong.port();
    let port_text = port.to_string();
    let mut with_tls = certificates.arguments();
    with_tls.extend(["--tls-auth-clients", "no", "--tls-port", &port_text].map(str::to_owned));
    let with_tls: Vec<&str> = with_tls.iter().map(String::as_str).collect();
    let instance = Instance::start(&format!("rediss://127.0.0.1:{port}"), &["--redis-ca", &ca]);
    let wrong = mended(instance, "TLS handshake", "redis:// instead of rediss://", || {
        drop(wrong);
        Redis::start_on(0, &with_tls)
    })
    .await;
    let instance = Instance::start(&format!("redis://127.0.0.1:{port}"), &[]);
    mended(instance, "", "connect by rediss://", || {
        drop(wrong);
        Redis::start_on(port, &[])
    })
    .await;
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority() {
    let certificates = Certificates::new();
    let port = free_port().to_string();
    let mut arguments = certificates.arguments();
    arguments.extend(["--tls-port", &port].map(str::to_owned));
    let _redis = Redis::start_on(0, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let instance = Instance::start(&format!("rediss://127.0.0.1:{port}"), &[]);
    instance.names("certificate", "--redis-ca");
    instance.degrades().await;
}

#[tokio::test]
async fn no_server() {
    let port = free_port();
    let instance = Instance::start(&format!("redis://127.0.0.1:{port}"), &[]);
    mended(instance, "Connection refused", "start Redis", || Redis::start_on(port, &[])).await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve() {
    // Longer than DNS permits, so that no resolver gets it.
    let instance = Instance::start(&format!("redis://{}.invalid:6379", "x".repeat(64)), &[]);
    instance.names("lookup", "correct the host name");
    instance.degrades().await;
}

/// A server that is not Redis, until it is dropped.
struct Fake {
    port: u16,
    ends: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Fake {
    /// Replies to each command by its name.
    fn start(reply: fn(&str) -> &'static str) -> Self {
        let port = free_port();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let accepting = thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                connections.push(stream.try_clone().expect("a stream"));
                thread::spawn(move || serve(&stream, reply));
            }
            connections.iter().for_each(|stream| drop(stream.shutdown(std::net::Shutdown::Both)));
        });
        Self { port, ends, accepting: Some(accepting) }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// Replies to commands, each of which is taken for its first word that is upper case.
fn serve(mut stream: &TcpStream, reply: fn(&str) -> &'static str) {
    let (mut bytes, mut input) = ([0; 65_536], String::new());
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        input += &String::from_utf8_lossy(&bytes[..length]);
        // Scripts come in several reads.
        if !input.ends_with("\r\n") {
            continue;
        }
        let replies: String = input
            .lines()
            .filter(|line| {
                ["CLIENT", "PING", "SCRIPT", "EVALSHA", "INFO", "TIME", "GET", "SET", "DEL"].contains(line)
            })
            .map(reply)
            .collect();
        input.clear();
        if stream.write_all(replies.as_bytes()).is_err() {
            return;
        }
    }
}

/// A fake that gives way to Redis.
async fn faked(reply: fn(&str) -> &'static str, cause: &str, remedy: &str) {
    let fake = Fake::start(reply);
    let port = fake.port;
    let instance = Instance::start(&format!("redis://127.0.0.1:{port}"), &[]);
    mended(instance, cause, remedy, || {
        drop(fake);
        wait("the port is in use", || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        Redis::start_on(port, &[])
    })
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_respond() {
    faked(|_| "", "timed out", "correct the address").await;
}

#[tokio::test]
async fn a_redis_that_is_too_old() {
    let reply = |command: &str| match command {
        "PING" => "+PONG\r\n",
        "INFO" => "$22\r\nredis_version:5.0.14\r\n\r\n",
        "EVALSHA" | "SET" => "-ERR syntax error\r\n",
        "SCRIPT" => "+OK\r\n",
        _ => "-ERR unknown subcommand\r\n",
    };
    faked(reply, "Redis 5.0.14 is too old; expected 6.2 or later: ERR syntax error", "upgrade Redis").await;
}

#[tokio::test]
async fn a_renamed_command() {
    let wrong = Redis::start_with(&["--rename-command", "SET", ""]);
    replaced(wrong, "redis", "", ["unknown command 'SET'", "use a server that has this command"], &[]).await;
}

#[tokio::test]
async fn a_database_that_redis_does_not_have() {
    let right = ["--databases", "100"];
    replaced(Redis::start(), "redis", "/99", ["DB index is out of range", "correct the number"], &right)
        .await;
}
