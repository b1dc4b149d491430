//! What is sent to the script, and reading what it answers.

use std::{fmt, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use super::{Redis, keys::Keys};
use crate::{AuditEntry, ControlError, Instance, metrics};
use tollgate_store::{StoreError, redis::Reply};

/// How long one attempt may take.
pub(super) const ATTEMPT: Duration = Duration::from_millis(1_500);
/// How long an attempt to read a version's files may take.
const READ: Duration = Duration::from_secs(6);
/// How long attempts are made.
const PATIENCE: Duration = Duration::from_secs(4);
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a beat may take.
pub(super) const BEAT: Duration = Duration::from_millis(800);

pub(super) type Answer<T> = Result<T, ControlError>;

/// One run of the script.
pub(super) struct Operation {
    name: &'static str,
    versions: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl Operation {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, versions: Vec::new(), arguments: Vec::new() }
    }

    /// The same with keys of versions.
    pub(super) fn on(mut self, versions: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.versions.extend(versions);
        self
    }

    /// The same with more arguments.
    pub(super) fn with(mut self, arguments: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.arguments.extend(arguments);
        self
    }
}

impl Redis {
    /// Runs an operation, again where it may not have run: all of them may run twice.
    pub(super) async fn ask(&self, operation: &Operation) -> Answer<Reply> {
        self.ask_within(operation, ATTEMPT).await
    }

    /// The same with another limit for one attempt.
    pub(super) async fn ask_within(&self, operation: &Operation, within: Duration) -> Answer<Reply> {
        let begun = Instant::now();
        let mut attempt: &[u8] = b"first";
        loop {
            let error = match self.run(operation, attempt, within).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if is_lasting(&error) || begun.elapsed() > PATIENCE {
                return Err(told(&error));
            }
            attempt = b"again";
            sleep(PAUSE).await;
        }
    }

    /// Runs an operation that is made again soon whatever comes of it.
    pub(super) async fn ask_once(&self, operation: &Operation, within: Duration) -> Answer<Reply> {
        self.run(operation, b"first", within).await.map_err(|error| told(&error))
    }

    /// Reads fields of a hash.
    pub(super) async fn read(&self, key: &[u8], fields: &[&str]) -> Answer<Reply> {
        let begun = Instant::now();
        loop {
            let read = self.store.read_hash(Keys::slot(), key, fields, READ).await;
            let error = match read.inspect_err(|error| metrics::store_error(error.label())) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if is_lasting(&error) || begun.elapsed() > PATIENCE {
                return Err(told(&error));
            }
            sleep(PAUSE).await;
        }
    }

    async fn run(
        &self,
        operation: &Operation,
        attempt: &[u8],
        within: Duration,
    ) -> Result<Reply, StoreError> {
        let keys: Vec<Vec<u8>> = self.keys.fixed().iter().chain(&operation.versions).cloned().collect();
        let start = [operation.name.as_bytes(), self.keys.channel(), attempt];
        let arguments: Vec<&[u8]> =
            start.into_iter().chain(operation.arguments.iter().map(Vec::as_slice)).collect();
        let ran = self.store.run(&self.script, Keys::slot(), &keys, &arguments, within).await;
        ran.inspect_err(|error| metrics::store_error(error.label()))
    }

    pub(crate) async fn audit(&self, before: Option<&str>, most: usize) -> Answer<Vec<AuditEntry>> {
        let begin = match before {
            None => "+".to_owned(),
            Some(id) if is_id(id) => format!("({id}"),
            Some(_) => return Ok(Vec::new()),
        };
        let operation = Operation::new("audit").with([begin.into_bytes(), most.to_string().into_bytes()]);
        let Reply::List(items) = self.ask(&operation).await? else { return Err(garbled("no list")) };
        let read = |item| {
            let [id, entry] = list(item)?;
            Ok(AuditEntry { id: text(bytes(id)?)?, ..read_json(&bytes(entry)?)? })
        };
        items.into_iter().map(read).collect()
    }

    pub(crate) async fn instances(&self) -> Answer<Vec<Instance>> {
        let reply = self.ask(&Operation::new("instances")).await?;
        let Reply::List(told) = reply else { return Err(garbled("no list")) };
        let read = |pair| -> Answer<Instance> {
            let [at, told] = list(pair)?;
            Ok(Instance { seen_at_ms: number(&bytes(at)?)?, ..read_json(&bytes(told)?)? })
        };
        // One of another release that makes no sense here hides no other.
        let mut instances: Vec<Instance> = told.into_iter().filter_map(|pair| read(pair).ok()).collect();
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(instances)
    }
}

/// Whether a text is the id of a stream's entry.
fn is_id(text: &str) -> bool {
    let is_number = |part: &str| part.parse::<u64>().is_ok();
    text.split_once('-').is_some_and(|(time, sequence)| is_number(time) && is_number(sequence))
}

fn is_lasting(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused(_) | StoreError::MalformedReply)
}

fn told(error: &StoreError) -> ControlError {
    match error {
        StoreError::MalformedReply => ControlError::Garbled("an answer of another form".to_owned()),
        error => ControlError::Unavailable(error.to_string()),
    }
}

/// What the store holds makes no sense, which is counted.
pub(super) fn garbled(what: impl fmt::Display) -> ControlError {
    metrics::store_error("malformed_reply");
    ControlError::Garbled(what.to_string())
}

pub(super) fn to_json(value: &impl Serialize) -> Answer<Vec<u8>> {
    serde_json::to_vec(value).map_err(garbled)
}

pub(super) fn read_json<T: DeserializeOwned>(text: &[u8]) -> Answer<T> {
    serde_json::from_slice(text).map_err(garbled)
}

/// A list of so many.
pub(super) fn list<const N: usize>(reply: Reply) -> Answer<[Reply; N]> {
    match reply {
        Reply::List(parts) => parts.try_into().map_err(|_| garbled("another number of parts")),
        _ => Err(garbled("no list")),
    }
}

pub(super) fn bytes(reply: Reply) -> Answer<Vec<u8>> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(garbled("no text")),
    }
}

pub(super) fn text(bytes: Vec<u8>) -> Answer<String> {
    String::from_utf8(bytes).map_err(|_| garbled("no text"))
}

pub(super) fn number(text: &[u8]) -> Answer<u64> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| garbled("no number"))
}
