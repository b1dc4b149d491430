//! The master named by Sentinel.
//!
//! All sentinels are queried at once. A sentinel that was cut off from the others may name a former master, so the
//! highest `config-epoch` counts: it rises with each failover, and a majority of the sentinels voted for it. Reports
//! without an epoch are decided by majority. A single sentinel that names an unusable server with the highest epoch does
//! not prevail: a connection is then made to the server that a majority names.

use std::{cmp::Ordering, fmt, time::Duration};

use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection, cmd};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tollgate_runtime::backoff::lengthened;

use super::connect::{ConnectError, ConnectTemplate, named, preload_scripts, text};
use super::{error::shown, script::CommandKeys, url::Address};
use crate::after;

/// Time limit for the responses of the sentinels, new connections included.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Time left to the remaining sentinels once more than half have responded.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(100);

/// Time limit for the response to `ROLE`.
const ROLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval between queries for the current master, before jitter.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A master, and the sentinels that monitor it.
pub(super) struct Master {
    template: ConnectTemplate,
    sentinels: Sentinels,
    /// Address of the master at the last connection.
    address: Option<Address>,
    /// Latest epoch in which the master was named.
    epoch: Option<u64>,
}

impl Master {
    pub(super) fn new(template: ConnectTemplate, sentinels: Sentinels) -> Self {
        Self { template, sentinels, address: None, epoch: None }
    }

    /// Connects to the master that is currently named.
    pub(super) async fn connect(&mut self) -> Result<MultiplexedConnection, ConnectError> {
        let mut last = ConnectError::UnknownMaster(self.sentinels.name.clone());
        for named in self.sentinels.query().await? {
            if !self.is_trusted(&named, false) {
                last = ConnectError::FormerMaster(named.address);
                continue;
            }
            match self.connect_to(&named.address).await {
                Ok(connection) => {
                    self.record(named);
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: &Address) -> Result<MultiplexedConnection, ConnectError> {
        let mut connection = self.template.connect(address).await?;
        // During a failover, the sentinels may still name the old master, which has been demoted by then.
        match role(&mut connection).await?.as_deref() {
            Some(b"master") => {
                preload_scripts(&mut connection, &[CommandKeys::NoSlots]).await?;
                Ok(connection)
            }
            _ => Err(ConnectError::NotMaster(address.clone())),
        }
    }

    /// Returns a connection to a new master once the sentinels name another one, and that server confirms its role.
    /// Until then, the working connection is kept.
    pub(super) async fn wait_for_failover(&mut self) -> MultiplexedConnection {
        // Each address is logged once.
        let mut logged = None;
        loop {
            sleep(lengthened(POLL_INTERVAL)).await;
            // Unresponsive sentinels are no evidence about the master.
            let Ok(mut all) = self.sentinels.query().await else { continue };
            all.retain(|named| named.is_latest);
            if let Some(same) = all.iter().find(|named| self.address.as_ref() == Some(&named.address)) {
                self.epoch = self.epoch.max(same.epoch);
                continue;
            }
            for named in all {
                let master = &self.sentinels.name;
                if logged.as_ref() != Some(&named.address) {
                    tracing::info!(%master, address = %named.address, "Sentinel named another master");
                    logged = Some(named.address.clone());
                }
                if !self.is_trusted(&named, true) {
                    continue;
                }
                match self.connect_to(&named.address).await {
                    Ok(connection) => {
                        self.record(named);
                        return connection;
                    }
                    Err(error) => {
                        tracing::debug!(%master, %error, "keeping the connection to the previous master");
                    }
                }
            }
        }
    }

    /// Whether to follow what the sentinels report. Outdated reports, such as those of the only reachable sentinel, are
    /// followed when there is no connection, or when a majority agrees, as after the sentinels were set up anew.
    fn is_trusted(&self, named: &NamedMaster, is_connected: bool) -> bool {
        let age = self.epoch.zip(named.epoch).map(|(known, named)| named.cmp(&known));
        match age {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) | None => named.is_majority || !is_connected,
            Some(Ordering::Less) => named.is_majority,
        }
    }

    fn record(&mut self, named: NamedMaster) {
        self.address = Some(named.address);
        self.epoch = named.epoch.or(self.epoch);
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{} at {address}", self.sentinels.name),
            None => f.write_str(&self.sentinels.name),
        }
    }
}

/// The role that a server reports.
async fn role(connection: &mut MultiplexedConnection) -> RedisResult<Option<Vec<u8>>> {
    let reply = timeout(ROLE_TIMEOUT, connection.send_packed_command(&cmd("ROLE"))).await;
    let reply = reply.map_err(|_| RedisError::from((ErrorKind::Io, "no response to ROLE")))?;
    Ok(match reply?.extract_error()? {
        Value::Array(parts) => match parts.into_iter().next() {
            Some(Value::BulkString(role)) => Some(role),
            _ => None,
        },
        _ => None,
    })
}

/// The sentinels that monitor a master.
pub(super) struct Sentinels {
    /// Name of the master in the sentinels' configuration.
    name: String,
    template: ConnectTemplate,
    members: Vec<Sentinel>,
}

struct Sentinel {
    address: Address,
    /// Connection of the last query, if that succeeded.
    connection: Option<MultiplexedConnection>,
}

/// Report of one sentinel.
#[derive(Clone, Debug)]
struct Report {
    address: Address,
    /// Version of the configuration, unless the sentinel withholds it: the user may lack the permission.
    epoch: Option<u64>,
}

/// Result of a query of all sentinels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedMaster {
    pub(super) address: Address,
    pub(super) epoch: Option<u64>,
    /// Whether more than half of all sentinels report it, unresponsive ones included in the total.
    pub(super) is_majority: bool,
    /// Whether it is named in the latest epoch. Otherwise it is a majority's, for when those of that epoch are unusable.
    pub(super) is_latest: bool,
}

impl Sentinels {
    pub(super) fn new(name: String, template: ConnectTemplate, addresses: Vec<Address>) -> Self {
        let members = addresses.into_iter().map(|address| Sentinel { address, connection: None });
        Self { name, template, members: members.collect() }
    }

    /// Queries all sentinels. Returns several addresses if they have equal votes, and last the address that a majority
    /// names if the latest epoch has another one.
    pub(super) async fn query(&mut self) -> Result<Vec<NamedMaster>, ConnectError> {
        let (name, template, listed) = (&self.name, &self.template, self.members.len());
        let mut queries: FuturesUnordered<_> =
            self.members.iter_mut().map(|sentinel| sentinel.query(template, name)).collect();
        let (mut reports, mut is_unknown) = (Vec::with_capacity(listed), false);
        let mut reason = format!("no response within {QUERY_TIMEOUT:?}");
        let mut end = after(Instant::now(), QUERY_TIMEOUT);
        while let Ok(Some(reply)) = timeout_at(end, queries.next()).await {
            match reply {
                Ok(Some(report)) => reports.push(report),
                Ok(None) => is_unknown = true,
                Err(error) => reason = shown(&error),
            }
            if is_majority(reports.len(), listed) {
                end = end.min(after(Instant::now(), STRAGGLER_TIMEOUT));
            }
        }
        match (reports.is_empty(), is_unknown) {
            (false, _) => Ok(select_masters(&reports, listed)),
            (true, true) => Err(ConnectError::UnknownMaster(name.clone())),
            (true, false) => Err(ConnectError::NoSentinel(reason)),
        }
    }
}

impl Sentinel {
    async fn query(&mut self, template: &ConnectTemplate, name: &str) -> RedisResult<Option<Report>> {
        // Stored again only after a successful query.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => template.connect(&self.address).await?,
        };
        // During a failover, only the first reply names the promoted server. The second has the epoch.
        let mut commands = Pipeline::with_capacity(2);
        commands
            .add_command(sentinel_command("get-master-addr-by-name", name))
            .add_command(sentinel_command("master", name));
        let replies = connection.send_packed_commands(&commands, 0, 2).await?;
        self.connection = Some(connection);
        let Ok([address, facts]) = <[Value; 2]>::try_from(replies) else { return Err(malformed_reply()) };
        let address = match address.extract_error()? {
            Value::Nil => return Ok(None),
            reply => read_address(&reply, &self.address).ok_or_else(malformed_reply)?,
        };
        let epoch = match facts.extract_error() {
            Ok(Value::Array(facts)) => named(&facts, "config-epoch").and_then(|epoch| epoch.parse().ok()),
            _ => None,
        };
        Ok(Some(Report { address, epoch }))
    }
}

/// Selects the addresses with the most votes among the reports of the latest epoch, followed by that of a majority.
fn select_masters(reports: &[Report], listed: usize) -> Vec<NamedMaster> {
    let latest = reports.iter().filter_map(|report| report.epoch).max();
    let votes = |address: &Address| reports.iter().filter(|report| report.address == *address).count();
    let candidates = || reports.iter().filter(|report| report.epoch == latest).map(|report| &report.address);
    let max_votes = candidates().map(votes).max().unwrap_or_default();
    let mut masters: Vec<NamedMaster> = Vec::new();
    for address in candidates().filter(|address| votes(address) == max_votes) {
        if masters.iter().all(|named| named.address != *address) {
            let is_majority = is_majority(max_votes, listed);
            masters.push(NamedMaster {
                address: address.clone(),
                epoch: latest,
                is_majority,
                is_latest: true,
            });
        }
    }
    let majority = reports.iter().find(|report| is_majority(votes(&report.address), listed));
    let majority = majority.filter(|report| masters.iter().all(|named| named.address != report.address));
    masters.extend(majority.map(|report| {
        let epochs = reports.iter().filter(|other| other.address == report.address).map(|other| other.epoch);
        let (address, epoch) = (report.address.clone(), epochs.max().flatten());
        NamedMaster { address, epoch, is_majority: true, is_latest: false }
    }));
    masters
}

const fn is_majority(some: usize, all: usize) -> bool {
    some > all / 2
}

fn sentinel_command(about: &str, name: &str) -> Cmd {
    let mut command = cmd("SENTINEL");
    command.arg(about).arg(name);
    command
}

fn read_address(reply: &Value, queried: &Address) -> Option<Address> {
    let Value::Array(parts) = reply else { return None };
    let [host, port] = parts.as_slice() else { return None };
    Address::from_node(text(host)?, text(port)?.parse().ok()?, queried)
}

fn malformed_reply() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "malformed reply from the sentinel").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Selects masters from reports, each a port and an epoch, of `listed` sentinels.
    fn named(reports: &[(u16, Option<u64>)], listed: usize) -> Vec<(u16, Option<u64>, bool)> {
        let reports =
            reports.iter().map(|(port, epoch)| Report { address: Address::new("h", *port), epoch: *epoch });
        let named = select_masters(&reports.collect::<Vec<_>>(), listed);
        let latest = named.into_iter().filter(|named| named.is_latest);
        latest.map(|named| (named.address.port, named.epoch, named.is_majority)).collect()
    }

    #[test]
    fn the_address_of_a_majority_follows_that_of_a_later_epoch() {
        let last = |reports: &[(u16, Option<u64>)], listed| {
            let reports = reports
                .iter()
                .map(|(port, epoch)| Report { address: Address::new("h", *port), epoch: *epoch });
            let named = select_masters(&reports.collect::<Vec<_>>(), listed);
            named.last().map(|named| (named.address.port, named.epoch, named.is_majority, named.is_latest))
        };
        let (old, new) = (Some(1), Some(2));
        assert_eq!(last(&[(1, old), (2, new), (1, old)], 3), Some((1, old, true, false)));
        assert_eq!(last(&[(1, None), (2, new), (1, old)], 3), Some((1, old, true, false)));
        // No majority, and one that is latest as well.
        assert_eq!(last(&[(1, old), (2, new), (1, old)], 4), Some((2, new, false, true)));
        assert_eq!(last(&[(1, old), (2, new), (2, new)], 3), Some((2, new, true, true)));
    }

    #[test]
    fn the_latest_epoch_wins_and_otherwise_the_majority() {
        let (old, new) = (Some(1), Some(2));
        assert_eq!(named(&[(1, old), (2, new), (2, new)], 3), [(2, new, true)]);
        assert_eq!(named(&[(1, old), (1, old), (2, new)], 3), [(2, new, false)]);
        assert_eq!(named(&[(1, old), (2, old), (2, old)], 3), [(2, old, true)]);
        assert_eq!(named(&[(1, None), (2, None), (2, None)], 5), [(2, None, false)]);
        assert_eq!(named(&[(1, None), (1, None), (2, new)], 3), [(2, new, false)]);
        assert_eq!(named(&[(1, None), (2, None)], 2), [(1, None, false), (2, None, false)]);
        assert_eq!(named(&[], 3), []);
    }
}
