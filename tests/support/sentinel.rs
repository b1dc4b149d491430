//! A master, its replica, and three sentinels that look after them.

use std::sync::LazyLock;

use super::prelude::*;

/// The name that the sentinels know the master by.
pub(crate) const MASTER: &str = "main";

/// Two servers and three sentinels; they end with the test.
#[derive(Debug)]
pub(crate) struct Sentinel {
    servers: Vec<Option<Redis>>,
    sentinels: Vec<Option<Redis>>,
    options: Options,
}

/// Options of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Arguments of the servers.
    pub(crate) server: &'static [&'static str],
    /// Lines for the sentinels' configuration; `{name}` is the master's name.
    pub(crate) sentinel: &'static str,
    /// The default user's password on the servers, if any.
    pub(crate) password: &'static str,
    /// And on the sentinels.
    pub(crate) sentinel_password: &'static str,
}

/// No passwords, and no failover because a machine is busy.
const PLAIN: Options = Options {
    server: &[],
    sentinel: "sentinel down-after-milliseconds main 60000",
    password: "",
    sentinel_password: "",
};

/// The group that tests share if they don't end any of its servers.
pub(crate) fn shared() -> &'static Sentinel {
    static SHARED: LazyLock<Sentinel> = LazyLock::new(|| Sentinel::start(PLAIN));
    &SHARED
}

impl Sentinel {
    pub(crate) fn start(options: Options) -> Self {
        let Options { server, password, sentinel_password, .. } = options;
        let mut arguments = server.to_vec();
        if !password.is_empty() {
            arguments.extend(["--requirepass", password, "--masterauth", password]);
        }
        let master = Redis::start_on(free_port(), &arguments);
        let master_port = master.port().to_string();
        arguments.extend(["--replicaof", "127.0.0.1", &master_port]);
        let replica = Redis::start_on(free_port(), &arguments);
        // Sentinels request the list of replicas when they start, and then after ten seconds.
        wait("the replica does not follow", || is_followed(&mut master.connect_as("default", password)));
        let sentinels = (0..3).map(|_| {
            let mut lines = vec![format!("sentinel monitor {MASTER} 127.0.0.1 {master_port} 2")];
            if !password.is_empty() {
                lines.push(format!("sentinel auth-pass {MASTER} {password}"));
            }
            if !sentinel_password.is_empty() {
                lines.push(format!("requirepass {sentinel_password}"));
                lines.push(format!("sentinel sentinel-pass {sentinel_password}"));
            }
            lines.push(options.sentinel.to_owned());
            Some(Redis::start_sentinel(free_port(), &format!("{}\n", lines.join("\n"))))
        });
        let group =
            Self { servers: vec![Some(master), Some(replica)], sentinels: sentinels.collect(), options };
        group.wait_until_formed();
        group
    }

    fn wait_until_formed(&self) {
        let connect = |sentinel: &Redis| sentinel.connect_as("default", self.options.sentinel_password);
        let mut connections: Vec<_> = self.sentinels.iter().flatten().map(connect).collect();
        for connection in &mut connections {
            // Sentinels announce themselves every two seconds, which is long for a test. Before 7.0 this is an error.
            let mut hurry = cmd("SENTINEL");
            let _ = hurry.arg("DEBUG").arg("PUBLISH-PERIOD").arg(100).exec(connection);
        }
        for connection in &mut connections {
            wait("the sentinels don't find each other", || {
                let mut question = cmd("SENTINEL");
                question.arg("MASTER").arg(MASTER);
                let reply: Vec<String> = question.query(connection).expect("the sentinel answers");
                let fact = |name| reply.iter().skip_while(|word| *word != name).nth(1).map(String::as_str);
                (fact("num-other-sentinels"), fact("num-slaves")) == (Some("2"), Some("1"))
            });
        }
    }

    /// The sentinels' addresses, with commas.
    pub(crate) fn addresses(&self) -> String {
        let ports = self.sentinels.iter().flatten().map(|one| format!("127.0.0.1:{}", one.port()));
        ports.collect::<Vec<_>>().join(",")
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://{}/{MASTER}", self.addresses())
    }

    /// A store whose keys begin with `prefix`.
    pub(crate) fn store(&self, prefix: &str) -> RedisStore {
        let settings = settings(&self.url());
        RedisStore::open(&RedisSettings { key_prefix: prefix.into(), ..settings }).expect("valid settings")
    }

    /// A connection to a sentinel that runs.
    pub(crate) fn sentinel(&self) -> redis::Connection {
        let sentinel = self.sentinels.iter().flatten().next().expect("one runs");
        sentinel.connect_as("default", self.options.sentinel_password)
    }

    /// A connection to a server that runs.
    pub(crate) fn server(&self, number: usize) -> redis::Connection {
        let server = self.servers[number].as_ref().expect("it runs");
        server.connect_as("default", self.options.password)
    }

    /// Whether a server says that it is a master. Sentinels end its connections, these too, when they change that.
    pub(crate) fn is_master(&self, number: usize) -> bool {
        let reply = cmd("ROLE").query::<redis::Value>(&mut self.server(number));
        matches!(&reply, Ok(redis::Value::Array(parts)) if parts[0] == redis::Value::BulkString(b"master".into()))
    }

    /// The number of decisions of a server.
    pub(crate) fn decisions(&self, number: usize) -> u64 {
        let mut question = cmd("INFO");
        let reply: String = question.arg("commandstats").query(&mut self.server(number)).expect("a reply");
        let calls = reply.split_once("cmdstat_evalsha:calls=").and_then(|(_, rest)| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// Kills a server.
    pub(crate) fn kill(&mut self, number: usize) {
        self.servers[number] = None;
    }

    /// Kills a sentinel.
    pub(crate) fn kill_sentinel(&mut self, number: usize) {
        self.sentinels[number] = None;
    }
}

fn is_followed(master: &mut redis::Connection) -> bool {
    let reply: String = cmd("INFO").arg("replication").query(master).expect("a reply");
    reply.contains("state=online")
}
