//! What the sentinels say about a master.
//!
//! All of them are asked at once. One that was cut off from the others may name a master of former times, so what
//! counts is the highest `config-epoch`: it rises with each failover, and most of the sentinels voted for it. Those
//! that tell no epoch are counted.

use std::time::Duration;

use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection, cmd};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::{address::Address, connect::ConnectTemplate, target::ConnectError};

/// How long the sentinels may take to answer, new connections to them included.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the others may take once more than half have answered.
const GRACE: Duration = Duration::from_millis(100);

/// The sentinels that know where a master is.
pub(super) struct Sentinels {
    /// The name that they know the master by.
    name: String,
    access: ConnectTemplate,
    each: Vec<Sentinel>,
}

struct Sentinel {
    address: Address,
    /// From the time before, if it served.
    connection: Option<MultiplexedConnection>,
}

/// What one sentinel says.
#[derive(Clone, Debug)]
struct Word {
    address: Address,
    /// The version of what it knows, unless it does not say so: the user may not be permitted to ask for it.
    epoch: Option<u64>,
}

/// What they say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) address: Address,
    pub(super) epoch: Option<u64>,
    /// Whether more than half of all sentinels say so, those that don't answer included.
    pub(super) by_most: bool,
}

impl Sentinels {
    pub(super) fn new(name: String, access: ConnectTemplate, addresses: Vec<Address>) -> Self {
        let each = addresses.into_iter().map(|address| Sentinel { address, connection: None });
        Self { name, access, each: each.collect() }
    }

    pub(super) fn master(&self) -> &str {
        &self.name
    }

    /// Asks all of them. More than one address is named if as many say one as the other.
    pub(super) async fn ask(&mut self) -> Result<Vec<Named>, ConnectError> {
        let (name, access, listed) = (&self.name, &self.access, self.each.len());
        let mut asked: FuturesUnordered<_> =
            self.each.iter_mut().map(|sentinel| sentinel.ask(access, name)).collect();
        let (mut words, mut is_unknown) = (Vec::with_capacity(listed), false);
        let mut reason = format!("no answer within {ASK_TIMEOUT:?}");
        let mut end = after(ASK_TIMEOUT);
        while let Ok(Some(answer)) = timeout_at(end, asked.next()).await {
            match answer {
                Ok(Some(word)) => words.push(word),
                Ok(None) => is_unknown = true,
                Err(error) => reason = error.to_string(),
            }
            if are_most(words.len(), listed) {
                end = end.min(after(GRACE));
            }
        }
        match (words.is_empty(), is_unknown) {
            (false, _) => Ok(best(&words, listed)),
            (true, true) => Err(ConnectError::UnknownMaster(name.clone())),
            (true, false) => Err(ConnectError::NoSentinel(reason)),
        }
    }
}

impl Sentinel {
    async fn ask(&mut self, access: &ConnectTemplate, name: &str) -> RedisResult<Option<Word>> {
        // It comes back only if it serves.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => access.connect(&self.address).await?,
        };
        // While a failover goes on, only the first tells who is promoted. The second has the epoch.
        let mut both = Pipeline::with_capacity(2);
        both.add_command(question("get-master-addr-by-name", name)).add_command(question("master", name));
        let answers = connection.send_packed_commands(&both, 0, 2).await?;
        self.connection = Some(connection);
        let Ok([address, facts]) = <[Value; 2]>::try_from(answers) else { return Err(nonsense()) };
        let address = match address.extract_error()? {
            Value::Nil => return Ok(None),
            answer => read_address(&answer, &self.address).ok_or_else(nonsense)?,
        };
        let epoch = facts.extract_error().ok().and_then(|facts| read_epoch(&facts));
        Ok(Some(Word { address, epoch }))
    }
}

/// What counts of what they say.
fn best(words: &[Word], listed: usize) -> Vec<Named> {
    let latest = words.iter().filter_map(|word| word.epoch).max();
    let votes = |address: &Address| words.iter().filter(|word| word.address == *address).count();
    let candidates = || words.iter().filter(|word| word.epoch == latest).map(|word| &word.address);
    let most = candidates().map(votes).max().unwrap_or_default();
    let mut best: Vec<Named> = Vec::new();
    for address in candidates().filter(|address| votes(address) == most) {
        if best.iter().all(|named| named.address != *address) {
            let by_most = are_most(most, listed);
            best.push(Named { address: address.clone(), epoch: latest, by_most });
        }
    }
    best
}

const fn are_most(some: usize, all: usize) -> bool {
    some.saturating_mul(2) > all
}

fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

fn question(about: &str, name: &str) -> Cmd {
    let mut question = cmd("SENTINEL");
    question.arg(about).arg(name);
    question
}

fn read_address(answer: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [host, port] = parts.as_slice() else { return None };
    Address::of_node(text(host)?, text(port)?.parse().ok()?, asked)
}

/// The epoch among a master's facts, which stand behind their names.
fn read_epoch(facts: &Value) -> Option<u64> {
    let Value::Array(facts) = facts else { return None };
    let (pairs, _) = facts.as_chunks::<2>();
    let (_, epoch) =
        pairs.iter().map(|[name, fact]| (name, fact)).find(|(name, _)| text(name) == Some("config-epoch"))?;
    text(epoch)?.parse().ok()
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn nonsense() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "the sentinel's answer makes no sense").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of words, each a port and an epoch, out of so many sentinels.
    fn named(words: &[(u16, Option<u64>)], listed: usize) -> Vec<(u16, Option<u64>, bool)> {
        let words =
            words.iter().map(|(port, epoch)| Word { address: Address::new("h", *port), epoch: *epoch });
        let named = best(&words.collect::<Vec<_>>(), listed);
        named.into_iter().map(|named| (named.address.port, named.epoch, named.by_most)).collect()
    }

    #[test]
    fn the_latest_word_counts_and_else_that_of_most() {
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
