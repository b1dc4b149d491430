//! Connecting to the servers of one installation.

use std::{convert::Infallible, fmt, future::pending, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value,
    aio::MultiplexedConnection, cmd,
};
use futures_util::StreamExt as _;
use tokio::{
    select,
    time::{Instant, interval, sleep, timeout},
};
use tollgate_runtime::{backoff::Backoff, outage::OutageLog};

use super::{
    Topology,
    error::shown,
    script::{self, CommandKeys},
    sentinel::Master,
    settings::Clients,
    url::Address,
};

/// Time limit of one attempt to connect, and of a response of a new connection or a subscription.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Login, database and TLS, which all servers have in common.
#[derive(Clone)]
pub(super) struct ConnectTemplate {
    /// Settings for some server; those of the others differ in the address.
    pattern: ConnectionInfo,
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{}", shown(.0))]
    Redis(#[from] RedisError),
    #[error("no sentinel responds; last error: {0}")]
    NoSentinel(String),
    #[error("the sentinels have no master named {0}")]
    UnknownMaster(String),
    #[error("Sentinel returned {0}, which is not a master")]
    NotMaster(Address),
    #[error("Sentinel returned {0}, a former master")]
    FormerMaster(Address),
}

impl ConnectTemplate {
    pub(super) fn from_client(client: &Client) -> Self {
        Self { pattern: client.get_connection_info().clone() }
    }

    /// The client for one server.
    pub(super) fn client(&self, address: &Address) -> RedisResult<Client> {
        let (host, port) = (address.host.as_ref().to_owned(), address.port);
        let address = match self.pattern.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(self.pattern.clone().set_addr(address))
    }

    /// Connects to one server.
    pub(super) async fn connect(&self, address: &Address) -> RedisResult<MultiplexedConnection> {
        connect(&self.client(address)?).await
    }
}

/// Connects with a client's settings.
pub(super) async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    // The wait for a response is bounded by the caller.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    match client.get_multiplexed_async_connection_with_config(&config).await {
        Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
            Err(login_refusal(client, &config).await.unwrap_or(error))
        }
        Err(error)
            if error.is_timeout()
                && matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) =>
        {
            Err((ErrorKind::Io, "no response to the TLS handshake").into())
        }
        connected => connected,
    }
}

/// The reply of a server that refuses the login, which the client library drops.
async fn login_refusal(client: &Client, config: &AsyncConnectionConfig) -> Option<RedisError> {
    let server = client.get_connection_info();
    let (login, anonymous) = (server.redis_settings(), server.clone().set_redis_settings(Default::default()));
    let client = Client::open(anonymous).ok()?;
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await.ok()?;
    let mut command = cmd("AUTH");
    command.arg(login.username()).arg(login.password());
    let reply = timeout(CONNECT_TIMEOUT, connection.send_packed_command(&command)).await.ok()?;
    let refusal = reply.and_then(Value::extract_error).err()?;
    // A proxy may quote what it received.
    let words = shown(&refusal);
    const SEPARATORS: [char; 5] = [' ', '\'', '"', '`', ','];
    let has_secret = login.password().is_some_and(|password| {
        if password.contains(SEPARATORS) {
            words.contains(password)
        } else {
            words.split(SEPARATORS).any(|word| word == password)
        }
    });
    (!has_secret).then_some(refusal)
}

/// Loads the scripts of such commands before their first use, so that not all requests meet `NOSCRIPT` at once on a new
/// server, and none waits while it compiles them. A server that refuses may have a script already; otherwise the first
/// request gets the reason. But one that requires a login closes the connection at a command of this size, so a short one
/// comes first.
pub(super) async fn preload_scripts(
    connection: &mut MultiplexedConnection,
    scripts: &[CommandKeys],
) -> RedisResult<()> {
    let reply = within(connection.send_packed_command(&cmd("PING")), "no response to PING").await?;
    if let Err(error) = reply.extract_error()
        && error.code() == Some("NOAUTH")
    {
        return Err(error);
    }
    for keys in scripts {
        // An error reply is a value here.
        within(connection.send_packed_command(&script::load(*keys)), "no response to SCRIPT LOAD").await?;
    }
    Ok(())
}

/// Target of a connection, resolved each time one is made.
pub(super) enum Target {
    /// One server, and the keys of the commands whose scripts it gets.
    Server(Box<Client>, &'static [CommandKeys]),
    /// The server that Sentinel names at that time.
    Master(Box<Master>),
}

impl Target {
    /// Makes a connection.
    pub(super) async fn connect(&mut self) -> Result<MultiplexedConnection, ConnectError> {
        match self {
            Self::Server(client, scripts) => {
                let mut connection = connect(client).await?;
                preload_scripts(&mut connection, scripts).await?;
                Ok(connection)
            }
            Self::Master(master) => master.connect().await,
        }
    }

    /// Returns another connection when the previous one, though it may work, leads to a former master.
    pub(super) async fn wait_for_failover(&mut self) -> MultiplexedConnection {
        match self {
            Self::Server(..) => pending().await,
            Self::Master(master) => master.wait_for_failover().await,
        }
    }
}

/// Name of the server in logs.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(client, _) => client.get_connection_info().addr().fmt(f),
            Self::Master(master) => master.fmt(f),
        }
    }
}

/// Interval of the probes of the connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Time that a subscription has to last before its next failure is logged.
const SETTLE_TIME: Duration = Duration::from_secs(10);
/// Pause after a first failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
/// Longest pause between attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// A subscription: on any node of a cluster, which forwards messages, or on whichever server is the master.
pub(super) struct Subscription {
    clients: Clients,
    attempts: usize,
}

impl Subscription {
    pub(super) const fn new(clients: Clients) -> Self {
        Self { clients, attempts: 0 }
    }

    /// Calls `notify` for each message of a channel, and after each interruption, in which messages may have been
    /// missed. Never ends.
    pub(super) async fn run(&mut self, servers: &Topology, channel: &[u8], notify: impl Fn()) -> Infallible {
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        let mut outage = OutageLog::default();
        loop {
            let started = Instant::now();
            let error = match self.receive(servers, channel, &notify).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            // A subscription that breaks soon neither resets the backoff nor is logged again.
            if started.elapsed() > SETTLE_TIME {
                backoff.reset();
                outage = OutageLog::default();
            }
            if outage.failed() {
                tracing::warn!(%error, "pub/sub subscription failed; polling for changes");
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Subscribes once and receives messages until the connection breaks.
    async fn receive(
        &mut self,
        servers: &Topology,
        channel: &[u8],
        notify: &impl Fn(),
    ) -> Result<Infallible, ConnectError> {
        let client = self.client(servers).await?;
        let mut connection = within(client.get_async_pubsub(), LATE).await?;
        within(connection.subscribe(channel), LATE).await?;
        notify();
        let (mut sink, mut messages) = connection.split();
        let mut probes = interval(PROBE_INTERVAL);
        loop {
            select! {
                message = messages.next() => match message {
                    Some(_) => notify(),
                    None => return Err(broken("connection closed").into()),
                },
                _ = probes.tick() => drop(within(sink.ping::<Value>(), LATE).await?),
            }
        }
    }

    async fn client(&mut self, servers: &Topology) -> Result<Client, ConnectError> {
        match (&mut self.clients, servers) {
            (Clients::Standalone(client), _) => Ok(Client::clone(client)),
            (Clients::Master(template, sentinels), _) => {
                let named = sentinels.query().await?;
                let named = named.first().ok_or_else(|| broken("no master named by the sentinels"))?;
                Ok(template.client(&named.address)?)
            }
            (Clients::Cluster(template, _), Topology::Cluster(cluster)) => {
                // A different node each time, since one may be unreachable.
                let nodes = cluster.nodes();
                let at = self.attempts.checked_rem(nodes.len()).unwrap_or_default();
                self.attempts = self.attempts.wrapping_add(1);
                let node = nodes.get(at).ok_or_else(|| broken("no known cluster node"))?;
                Ok(template.client(node)?)
            }
            (Clients::Cluster(..), Topology::Single(_)) => Err(broken("not a cluster").into()),
        }
    }
}

/// Reason of a subscription whose server does not respond.
const LATE: &str = "no response in time";

/// Waits for a response, with `late` as the reason if none comes in time.
async fn within<T>(response: impl Future<Output = RedisResult<T>>, late: &'static str) -> RedisResult<T> {
    timeout(CONNECT_TIMEOUT, response).await.unwrap_or_else(|_| Err(broken(late)))
}

fn broken(reason: &'static str) -> RedisError {
    (ErrorKind::Io, reason).into()
}
