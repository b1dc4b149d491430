//! Following the master that Sentinel names.

use std::{fmt, time::Duration};

use ::redis::{Cmd, ErrorKind, RedisError, RedisResult, Value, aio::MultiplexedConnection, cmd};
use tokio::time::{sleep, timeout};

use super::{access::Access, address::Address, target::ConnectError};

/// How long a sentinel may take to answer, a new connection to it included; then the next one is asked.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// Between two questions whether the master is still the same.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A master, and the sentinels that know where it is.
pub(super) struct Master {
    name: String,
    /// For the master.
    access: Access,
    sentinels: Vec<Address>,
    /// For the sentinels.
    sentinel_access: Access,
    /// The sentinel to ask first: the one that answered last.
    first: usize,
    /// The connection to it.
    sentinel: Option<MultiplexedConnection>,
    /// Where the master was when the last connection to it was made.
    address: Option<Address>,
}

impl Master {
    pub(super) fn new(
        name: String,
        access: Access,
        sentinels: Vec<Address>,
        sentinel_access: Access,
    ) -> Self {
        Self { name, access, sentinels, sentinel_access, first: 0, sentinel: None, address: None }
    }

    /// Connects to the master that is named now.
    pub(super) async fn connect(&mut self) -> Result<MultiplexedConnection, ConnectError> {
        let address = self.ask().await?;
        let connected = self.connect_to(&address).await;
        match connected.is_ok() {
            true => self.address = Some(address),
            // It may know less than the others.
            false => self.pass_on(),
        }
        connected
    }

    async fn connect_to(&self, address: &Address) -> Result<MultiplexedConnection, ConnectError> {
        let mut connection = self.access.connect(address).await?;
        // During a failover, the sentinels may still name the old master, which was demoted by then.
        match role(&mut connection).await?.as_deref() {
            Some(b"master") => Ok(connection),
            _ => Err(ConnectError::NoMaster(address.clone())),
        }
    }

    /// Ends when the sentinels name another master than the one that was connected to.
    pub(super) async fn moved(&mut self) {
        loop {
            sleep(ASK_EVERY).await;
            // That no sentinel answers says nothing about the master.
            if let Ok(named) = self.ask().await
                && self.address.as_ref() != Some(&named)
            {
                tracing::info!(master = %self.name, address = %named, "Sentinel names another master");
                return;
            }
        }
    }

    /// Asks the sentinels in turn, until one answers.
    async fn ask(&mut self) -> Result<Address, ConnectError> {
        let mut last = ConnectError::UnknownMaster(self.name.clone());
        for _ in 0..self.sentinels.len() {
            let answer = timeout(ASK_TIMEOUT, self.ask_first()).await;
            match answer {
                Ok(Ok(Some(address))) => return Ok(address),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => last = ConnectError::NoSentinel(error.to_string()),
                Err(_) => last = ConnectError::NoSentinel(format!("no answer within {ASK_TIMEOUT:?}")),
            }
            self.pass_on();
        }
        Err(last)
    }

    /// Has the next sentinel be asked first.
    fn pass_on(&mut self) {
        self.sentinel = None;
        self.first = self.first.wrapping_add(1).checked_rem(self.sentinels.len()).unwrap_or_default();
    }

    async fn ask_first(&mut self) -> RedisResult<Option<Address>> {
        let Some(asked) = self.sentinels.get(self.first) else { return Ok(None) };
        let mut connection = match self.sentinel.take() {
            Some(connection) => connection,
            None => self.sentinel_access.connect(asked).await?,
        };
        let answer = connection.send_packed_command(&question(&self.name)).await?.extract_error()?;
        let address = match answer {
            Value::Nil => None,
            answer => Some(read_address(&answer, asked).ok_or_else(nonsense)?),
        };
        self.sentinel = Some(connection);
        Ok(address)
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{} at {address}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

fn question(name: &str) -> Cmd {
    let mut question = cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(name);
    question
}

fn read_address(answer: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let (host, port) = (str::from_utf8(host).ok()?, str::from_utf8(port).ok()?);
    Address::of_node(host, port.parse().ok()?, asked)
}

/// What a server says that it is.
async fn role(connection: &mut MultiplexedConnection) -> RedisResult<Option<Vec<u8>>> {
    let answer = timeout(ASK_TIMEOUT, connection.send_packed_command(&cmd("ROLE"))).await;
    let answer = answer.map_err(|_| RedisError::from((ErrorKind::Io, "no answer to ROLE")))?;
    Ok(match answer?.extract_error()? {
        Value::Array(parts) => match parts.into_iter().next() {
            Some(Value::BulkString(role)) => Some(role),
            _ => None,
        },
        _ => None,
    })
}

fn nonsense() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "the sentinel's answer makes no sense").into()
}
