//! Runs operations of the script, and reads its replies.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tollgate_store::redis::{RedisSettings, Reply, Script};
use tollgate_store::{RedisStore, StoreError, key::slot_of};

use crate::{ControlError, ControlResult, book::BookName, metrics};

/// Operations on figures of the fleet.
const FLEET_SOURCE: &str = include_str!("../../../../lua/fleet.lua");

/// Operations on versions, bans, heartbeats and copies; `lua/control/entry.lua` documents keys and arguments.
pub const CONTROL_SCRIPT: &str = concat!(
    include_str!("../../../../lua/control/entry.lua"),
    include_str!("../../../../lua/control/audit.lua"),
    include_str!("../../../../lua/control/versions.lua"),
    include_str!("../../../../lua/control/bans.lua"),
    include_str!("../../../../lua/control/instances.lua"),
    include_str!("../../../../lua/control/regions.lua"),
    include_str!("../../../../lua/control/copies.lua"),
    include_str!("../../../../lua/control/dispatch.lua"),
);

/// Operations on the book; `lua/book/entry.lua` documents keys and arguments.
pub const BOOK_SCRIPT: &str = concat!(
    include_str!("../../../../lua/book/entry.lua"),
    include_str!("../../../../lua/control/audit.lua"),
    include_str!("../../../../lua/book/records.lua"),
    include_str!("../../../../lua/book/changes.lua"),
    include_str!("../../../../lua/book/pages.lua"),
    include_str!("../../../../lua/book/restoration.lua"),
    include_str!("../../../../lua/book/copies.lua"),
    include_str!("../../../../lua/book/dispatch.lua"),
);

/// Timeout of one attempt.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_500);
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
    /// A book, and whose audit log has the change.
    Book {
        book: BookName,
        log: BookName,
    },
}

impl Operation {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, script: ScriptName::Control, versions: Vec::new(), arguments: Vec::new() }
    }

    /// An operation on a book.
    pub(crate) const fn of_book(book: BookName, name: &'static str) -> Self {
        Self {
            name,
            script: ScriptName::Book { book, log: book },
            versions: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Takes another audit log.
    pub(crate) fn logged_by(mut self, of: BookName) -> Self {
        if let ScriptName::Book { log, .. } = &mut self.script {
            *log = of;
        }
        self
    }

    /// Adds keys of versions.
    pub(crate) fn on(mut self, versions: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.versions.extend(versions);
        self
    }

    /// Adds arguments.
    pub(crate) fn with(mut self, arguments: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.arguments.extend(arguments);
        self
    }
}

/// Client of the script.
#[derive(Debug)]
pub(crate) struct ScriptClient {
    pub(crate) store: RedisStore,
    pub(crate) keys: Keys,
    script: Script,
    pub(crate) book_script: Script,
    /// Operations on figures of the fleet.
    fleet_script: Script,
    /// Time of the last denial by the ACL.
    denied_at: Mutex<Option<Instant>>,
}

impl ScriptClient {
    pub(super) fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        let store = RedisStore::open(settings)?;
        let keys = Keys::new(&settings.key_prefix);
        let [script, book_script, fleet_script] =
            [CONTROL_SCRIPT, BOOK_SCRIPT, FLEET_SOURCE].map(Script::new);
        let denied_at = Mutex::default();
        Ok(Self { store, keys, script, book_script, fleet_script, denied_at })
    }

    /// Runs an operation, and again if it may not have run: every operation may run twice.
    pub(crate) async fn run(&self, operation: &Operation) -> ControlResult<Reply> {
        self.run_with_timeout(operation, ATTEMPT_TIMEOUT).await
    }

    /// Like [`Self::run`], with another timeout of one attempt.
    pub(crate) async fn run_with_timeout(
        &self,
        operation: &Operation,
        timeout: Duration,
    ) -> ControlResult<Reply> {
        retried(|attempt| self.attempt(operation, attempt, timeout)).await
    }

    /// Runs an operation without retries, because it is repeated soon anyway.
    pub(crate) async fn run_once(&self, operation: &Operation, timeout: Duration) -> ControlResult<Reply> {
        self.attempt(operation, b"first", timeout).await.map_err(|error| control_error(&error))
    }

    /// Runs an operation of the script on figures of the fleet, without retries.
    pub(crate) async fn run_shared(
        &self,
        operation: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> ControlResult<Reply> {
        self.require_permission()?;
        let start = [operation.as_bytes()];
        let reply = self.call(&self.fleet_script, keys, &start, arguments, ATTEMPT_TIMEOUT);
        reply.await.map_err(|error| control_error(&error))
    }

    /// Runs a plain command on figures of the fleet, without retries.
    pub(crate) async fn run_command(&self, name: &str, arguments: &[&[u8]]) -> ControlResult<Reply> {
        self.require_permission()?;
        let reply = self.store.run_command(Keys::slot(), name, arguments, ATTEMPT_TIMEOUT).await;
        self.counted(reply).map_err(|error| control_error(&error))
    }

    fn require_permission(&self) -> ControlResult<()> {
        if self.denied_at.lock().is_some_and(|at| at.elapsed() < ACL_PAUSE) {
            return Err(ControlError::Unavailable("the ACL of Redis denied an operation just now".into()));
        }
        Ok(())
    }

    /// Reads fields of a hash.
    pub(super) async fn read(&self, key: &[u8], fields: &[&str]) -> ControlResult<Reply> {
        let arguments: Vec<&[u8]> =
            [key].into_iter().chain(fields.iter().map(|field| field.as_bytes())).collect();
        let read = || self.store.run_command(Keys::slot(), "HMGET", &arguments, READ_TIMEOUT);
        retried(|_| async { self.counted(read().await) }).await
    }

    async fn attempt(
        &self,
        operation: &Operation,
        attempt: &[u8],
        timeout: Duration,
    ) -> Result<Reply, StoreError> {
        let (script, mut keys) = match operation.script {
            ScriptName::Control => (&self.script, self.keys.fixed.to_vec()),
            ScriptName::Book { book, log } => {
                let [_, audit, ..] = self.keys.of_book(log);
                let mut keys = self.keys.of_book(book).clone();
                keys[1].clone_from(audit);
                (&self.book_script, keys.to_vec())
            }
        };
        keys.extend(operation.versions.iter().cloned());
        let start = [operation.name.as_bytes(), &self.keys.channel, attempt];
        self.call(script, &keys, &start, &operation.arguments, timeout).await
    }

    async fn call(
        &self,
        script: &Script,
        keys: &[Vec<u8>],
        start: &[&[u8]],
        arguments: &[Vec<u8>],
        timeout: Duration,
    ) -> Result<Reply, StoreError> {
        let arguments = arguments.iter().map(Vec::as_slice);
        let arguments: Vec<&[u8]> = start.iter().copied().chain(arguments).collect();
        self.counted(self.store.run(script, Keys::slot(), keys, &arguments, timeout).await)
    }

    /// Counts an error, and records a denial by the ACL.
    fn counted(&self, reply: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        reply.inspect_err(|error| {
            metrics::STORE_ERRORS.increment([error.label()]);
            if control_error(error).is_acl_denial() {
                *self.denied_at.lock() = Some(Instant::now());
            }
        })
    }
}

/// Repeats an attempt that fails. Each takes the word for the script: `first` or `again`.
async fn retried<F>(attempt: impl Fn(&'static [u8]) -> F) -> ControlResult<Reply>
where
    F: Future<Output = Result<Reply, StoreError>>,
{
    let begun = Instant::now();
    let mut number: &'static [u8] = b"first";
    loop {
        match attempt(number).await {
            Ok(reply) => return Ok(reply),
            Err(error @ (StoreError::Refused(_) | StoreError::MalformedReply)) => {
                return Err(control_error(&error));
            }
            Err(error) if begun.elapsed() > RETRY_PERIOD => return Err(control_error(&error)),
            Err(_) => {}
        }
        number = b"again";
        sleep(RETRY_INTERVAL).await;
    }
}

fn control_error(error: &StoreError) -> ControlError {
    match error {
        StoreError::MalformedReply => ControlError::Malformed("unexpected reply".to_owned()),
        error => ControlError::Unavailable(error.to_string()),
    }
}

/// Hash tag of all keys.
const TAG: &str = "tollgate-rules";

/// Names of the keys of a book, in the order of the script's KEYS. The system's begin with `system-`.
pub(crate) const BOOK_KEYS: [&str; 7] =
    ["book", "audit", "records", "record-revisions", "record-removals", "record-ends", "record-heads"];

/// The keys of one installation.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Common prefix.
    start: String,
    /// Keys of every operation.
    fixed: [Vec<u8>; 6],
    /// Keys of every operation on the operators' book.
    book: [Vec<u8>; 7],
    /// Keys of every operation on the system's book.
    system_book: [Vec<u8>; 7],
    /// Keys of the list of active bans, as the script's operations on it take them.
    pub(super) bans: [Vec<u8>; 3],
    pub(super) channel: Vec<u8>,
}

impl Keys {
    fn new(prefix: &str) -> Self {
        let start = format!("{prefix}{{{TAG}}}:");
        let named = |name: &str| format!("{start}{name}").into_bytes();
        Self {
            fixed: ["head", "audit", "instances", "seen", "book", "system-book"].map(named),
            book: BOOK_KEYS.map(named),
            system_book: BOOK_KEYS.map(|name| named(&format!("system-{name}"))),
            bans: ["bans", "ban-records", "watched-bans"].map(named),
            channel: named("changes"),
            start,
        }
    }

    /// Keys of every operation on a book.
    pub(super) const fn of_book(&self, book: BookName) -> &[Vec<u8>; 7] {
        match book {
            BookName::Operators => &self.book,
            BookName::System => &self.system_book,
        }
    }

    /// A key of this name.
    pub(crate) fn named(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.start).into_bytes()
    }

    pub(crate) fn version(&self, number: u64) -> Vec<u8> {
        self.named(&format!("version:{number}"))
    }

    /// Slot of all keys in a cluster.
    const fn slot() -> u16 {
        slot_of(TAG.as_bytes())
    }
}
