//! Connecting to a server, and texts of its replies.

use std::time::Duration;

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value,
    aio::MultiplexedConnection, cmd,
};
use tokio::time::timeout;

use super::script::{self, CommandKeys};
use super::{error::shown, url::Address};

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

/// Waits for a response, with `late` as the reason if none comes in time.
pub(super) async fn within<T>(
    response: impl Future<Output = RedisResult<T>>,
    late: &'static str,
) -> RedisResult<T> {
    timeout(CONNECT_TIMEOUT, response).await.unwrap_or_else(|_| Err(broken(late)))
}

pub(super) fn broken(reason: &'static str) -> RedisError {
    (ErrorKind::Io, reason).into()
}

/// The text of a reply or of a part of one.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// The text after a name in a flat list of names and values.
pub(super) fn named<'a>(pairs: &'a [Value], name: &str) -> Option<&'a str> {
    let (pairs, _) = pairs.as_chunks::<2>();
    pairs.iter().find(|[known, _]| text(known) == Some(name)).and_then(|[_, value]| text(value))
}
