//! Runs operations of the script, and reads its replies.

use std::{convert::Infallible, fmt, time::Duration};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};
use tollgate_store::{
    RedisStore, StoreError,
    redis::{RedisSettings, Reply, Script},
};

use super::keys::Keys;
use crate::{ControlError, metrics, scripts};

const FLEET_SOURCE: &str = include_str!("../../../../lua/fleet.lua");
const COPY_SOURCE: &str = include_str!("../../../../lua/copy.lua");

/// Timeout of one attempt.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Timeout of an attempt to read a version's files.
const READ_TIMEOUT: Duration = Duration::from_secs(6);
/// Time after which a failed attempt is not repeated.
const RETRY_PERIOD: Duration = Duration::from_secs(4);
/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which figures are not sent to a server whose ACL denied an operation. A user that is permitted limits alone is
/// no failure, and the server logs each denial.
const ACL_PAUSE: Duration = Duration::from_secs(30);
/// Timeout of a heartbeat.
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(800);

pub(super) type ControlResult<T> = Result<T, ControlError>;

/// One operation of the script.
#[derive(Clone)]
pub(crate) struct Operation {
    name: &'static str,
    script: ScriptName,
    versions: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

/// Script that an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptName {
    Control,
    Overrides,
}

impl Operation {
    pub(super) const fn new(name: &'static str) -> Self {
        Self::of(ScriptName::Control, name)
    }

    const fn of(script: ScriptName, name: &'static str) -> Self {
        Self { name, script, versions: Vec::new(), arguments: Vec::new() }
    }

    /// An operation on overrides of rules.
    pub(super) const fn of_overrides(name: &'static str) -> Self {
        Self::of(ScriptName::Overrides, name)
    }

    /// Adds keys of versions.
    pub(super) fn on(mut self, versions: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.versions.extend(versions);
        self
    }

    /// Adds arguments.
    pub(super) fn with(mut self, arguments: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.arguments.extend(arguments);
        self
    }
}

/// Client of the script.
#[derive(Debug)]
pub(crate) struct ScriptClient {
    store: RedisStore,
    pub(super) keys: Keys,
    script: Script,
    overrides_script: Script,
    /// Operations on figures of the fleet.
    fleet_script: Script,
    /// Operations on copies of another region's rules.
    copy_script: Script,
    /// Time of the last denial by the ACL.
    denied_at: Mutex<Option<Instant>>,
}

impl ScriptClient {
    pub(super) fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        let store = RedisStore::open(settings)?;
        let keys = Keys::new(&settings.key_prefix);
        let [script, overrides_script, fleet_script, copy_script] =
            [scripts::CONTROL, scripts::OVERRIDES, FLEET_SOURCE, COPY_SOURCE].map(Script::new);
        let denied_at = Mutex::default();
        Ok(Self { store, keys, script, overrides_script, fleet_script, copy_script, denied_at })
    }

    /// Calls `changed` after each change by another instance.
    pub(super) async fn subscribe(
        &self,
        settings: &RedisSettings,
        changed: impl Fn(),
    ) -> Result<Infallible, StoreError> {
        self.store.subscribe(settings, self.keys.channel(), changed).await
    }

    /// Runs an operation, and again if it may not have run: every operation may run twice.
    pub(super) async fn run(&self, operation: &Operation) -> ControlResult<Reply> {
        self.run_with_timeout(operation, ATTEMPT_TIMEOUT).await
    }

    /// Like [`Self::run`], with another timeout of one attempt.
    pub(super) async fn run_with_timeout(
        &self,
        operation: &Operation,
        timeout: Duration,
    ) -> ControlResult<Reply> {
        let begun = Instant::now();
        let mut attempt: &[u8] = b"first";
        loop {
            let error = match self.attempt(operation, attempt, timeout).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if is_permanent(&error) || begun.elapsed() > RETRY_PERIOD {
                return Err(control_error(&error));
            }
            attempt = b"again";
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Runs an operation without retries, because it is repeated soon anyway.
    pub(super) async fn run_once(&self, operation: &Operation, timeout: Duration) -> ControlResult<Reply> {
        self.attempt(operation, b"first", timeout).await.map_err(|error| control_error(&error))
    }

    /// Runs an operation on figures of the fleet, without retries.
    pub(super) async fn run_shared(
        &self,
        operation: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
        timeout: Duration,
    ) -> ControlResult<Reply> {
        if self.denied_at.lock().is_some_and(|at| at.elapsed() < ACL_PAUSE) {
            return Err(ControlError::Unavailable("the ACL of Redis denied an operation just now".into()));
        }
        let named = [operation.as_bytes()];
        let arguments: Vec<&[u8]> = named.into_iter().chain(arguments.iter().map(Vec::as_slice)).collect();
        let reply = self.store.run(&self.fleet_script, Keys::slot(), keys, &arguments, timeout).await;
        reply.inspect_err(|error| self.failed(error)).map_err(|error| control_error(&error))
    }

    /// Runs an operation on copies, without retries, because it is repeated soon anyway.
    pub(super) async fn run_copy(
        &self,
        operation: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
        timeout: Duration,
    ) -> ControlResult<Reply> {
        let start = [operation.as_bytes(), self.keys.channel()];
        let arguments: Vec<&[u8]> = start.into_iter().chain(arguments.iter().map(Vec::as_slice)).collect();
        let reply = self.store.run(&self.copy_script, Keys::slot(), keys, &arguments, timeout).await;
        reply.inspect_err(|error| self.failed(error)).map_err(|error| control_error(&error))
    }

    /// Reads fields of a hash.
    pub(super) async fn read(&self, key: &[u8], fields: &[&str]) -> ControlResult<Reply> {
        let begun = Instant::now();
        loop {
            let read = self.store.read_hash(Keys::slot(), key, fields, READ_TIMEOUT).await;
            let error = match read.inspect_err(|error| metrics::store_error(error.label())) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if is_permanent(&error) || begun.elapsed() > RETRY_PERIOD {
                return Err(control_error(&error));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    async fn attempt(
        &self,
        operation: &Operation,
        attempt: &[u8],
        timeout: Duration,
    ) -> Result<Reply, StoreError> {
        let (script, keys) = match operation.script {
            ScriptName::Control => (&self.script, self.keys.fixed()),
            ScriptName::Overrides => (&self.overrides_script, self.keys.overrides()),
        };
        let keys: Vec<Vec<u8>> = keys.iter().chain(&operation.versions).cloned().collect();
        let start = [operation.name.as_bytes(), self.keys.channel(), attempt];
        let arguments: Vec<&[u8]> =
            start.into_iter().chain(operation.arguments.iter().map(Vec::as_slice)).collect();
        let reply = self.store.run(script, Keys::slot(), &keys, &arguments, timeout).await;
        reply.inspect_err(|error| self.failed(error))
    }

    fn failed(&self, error: &StoreError) {
        metrics::store_error(error.label());
        if control_error(error).is_acl_denial() {
            *self.denied_at.lock() = Some(Instant::now());
        }
    }
}

fn is_permanent(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused(_) | StoreError::MalformedReply)
}

fn control_error(error: &StoreError) -> ControlError {
    match error {
        StoreError::MalformedReply => ControlError::Malformed("unexpected reply".to_owned()),
        error => ControlError::Unavailable(error.to_string()),
    }
}

/// Error of malformed data, which is counted.
pub(super) fn malformed(what: impl fmt::Display) -> ControlError {
    metrics::store_error("malformed_reply");
    ControlError::Malformed(what.to_string())
}

pub(super) fn to_json(value: &impl Serialize) -> ControlResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(malformed)
}

pub(super) fn read_json<T: DeserializeOwned>(text: &[u8]) -> ControlResult<T> {
    serde_json::from_slice(text).map_err(malformed)
}

/// Returns the parts of a list of this length.
pub(super) fn list<const N: usize>(reply: Reply) -> ControlResult<[Reply; N]> {
    match reply {
        Reply::List(parts) => parts.try_into().map_err(|_| malformed("unexpected number of parts")),
        _ => Err(malformed("no list")),
    }
}

pub(super) fn bytes(reply: Reply) -> ControlResult<Vec<u8>> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(malformed("no text")),
    }
}

pub(super) fn text(bytes: Vec<u8>) -> ControlResult<String> {
    String::from_utf8(bytes).map_err(|_| malformed("no text"))
}

pub(super) fn number(text: &[u8]) -> ControlResult<u64> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| malformed("no number"))
}
