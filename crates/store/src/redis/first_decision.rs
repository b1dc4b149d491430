//! The first decision of a store: the proof that its servers decide, or the reason why they do not, with a remedy.

use std::{collections::HashSet, time::Duration};

use ::redis::{Cmd, cmd};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tollgate_core::RecordId;
use tollgate_core::algorithm::{Algorithm, Charging, Parameters, Policy};
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_core::quota::{Quota, Unit, Window};

use super::error::{self, SendError};
use super::{RedisStore, connect::text, info};
use crate::request::{Check, TagRequest};
use crate::{StoreError, after, key::CellKey};

/// Pause after a failed attempt.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(250);

/// Time limit for a connection, before an attempt.
const CONNECTION_TIMEOUT: Duration = Duration::from_millis(500);

/// Shortest time limit of an attempt: a slow server is no mistake of its set-up.
const MIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Hash tags of an attempt, at least, so that a node of a cluster refuses those of another slot.
const MIN_TAGS: usize = 2;

/// Hash tags among which each master of a cluster is likely to have one.
const MAX_TAGS: usize = 1_024;

/// Oldest version of Redis whose commands have what the scripts use: `SET` with `PXAT`, and `ZMSCORE`.
const MIN_VERSION: (u32, u32) = (6, 2);

/// Reason why a store has not decided yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; {remedy}")]
pub struct Undecided {
    /// The failure, in the server's own words if it replied.
    pub cause: String,
    /// Instruction for the operator.
    pub remedy: &'static str,
    /// Whether the server fails or does not respond, rather than that the set-up is wrong.
    pub is_outage: bool,
}

/// Waits until the server, or each master of a cluster that responds, has made a decision that charges no counter of a
/// rule. Calls `report` after each failed attempt but the first one, which may merely have been slow.
pub async fn first_decision(store: &RedisStore, report: impl Fn(Undecided)) {
    let mut is_first = true;
    while let Err(undecided) = decide_nothing(store).await {
        if !std::mem::replace(&mut is_first, false) {
            report(undecided);
        }
        sleep(ATTEMPT_INTERVAL).await;
    }
}

async fn decide_nothing(store: &RedisStore) -> Result<(), Undecided> {
    // A connection to a replica is replaced after each attempt.
    let _ = timeout(CONNECTION_TIMEOUT, store.connected()).await;
    let requests = probes(store);
    let now = Instant::now();
    let times = store.times(now, Some(after(now, store.shared.options.timeout.max(MIN_TIMEOUT))));
    let attempts = requests.iter().map(|request| store.send(request, times));
    let outcomes = requests.iter().zip(join_all(attempts).await);
    let failures: Vec<_> =
        outcomes.filter_map(|(request, outcome)| Some((outcome.err()?, request))).collect();
    let has_decided = failures.len() < requests.len();
    // After an outage of a master, the others may decide meanwhile.
    let mistake = failures.iter().find(|(error, _)| !is_outage(error));
    let failure = mistake.or(failures.first().filter(|_| !has_decided));
    let Some((error, request)) = failure else { return Ok(()) };
    let cause = explained(store, error, request).await;
    Err(Undecided { remedy: remedy(&cause), cause, is_outage: is_outage(error) })
}

/// Requests of different hash tags, one for each master of a cluster.
fn probes(store: &RedisStore) -> Vec<TagRequest> {
    let mut owners = HashSet::new();
    let keys = (0..MAX_TAGS).map(|number| {
        let value = number.to_string();
        CellKey::open("", [Entry { key: "ready", value: &value }].into_iter())
    });
    let of_owners = keys.enumerate().filter(|(number, key)| {
        let is_new = owners.insert(store.shared.servers.owner(key.slot()));
        is_new || *number < MIN_TAGS
    });
    of_owners.map(|(_, key)| probe(key)).collect()
}

/// The words of a server that refused a request, and what it states about itself: that it is a sentinel, or too old. If
/// it refused a command of the script, the words with that command.
async fn explained(store: &RedisStore, error: &StoreError, request: &TagRequest) -> String {
    let mut cause = words(error);
    let (StoreError::Declined(_) | StoreError::Refused(_)) = error else { return cause };
    let Some(key) = request.key() else { return cause };
    if cause.contains("script") {
        // Another key of the slot, since other instances use this one.
        let name = [&*store.shared.options.key_prefix, key.as_bytes(), b"~"].concat();
        let arguments = [&*name, b"", b"PX", b"1000"];
        for (command, count) in [("TIME", 0), ("GET", 1), ("SET", 4), ("DEL", 1)] {
            let mut command = cmd(command);
            command.arg(arguments.get(..count).unwrap_or_default());
            if let Err(SendError::Failed(refusal)) = ask(store, key, &command).await {
                cause = error::shown(&refusal);
                break;
            }
        }
    }
    let reply = ask(store, key, cmd("INFO").arg("server")).await.ok();
    let facts = reply.as_ref().and_then(text).unwrap_or_default();
    if info::field(facts, "redis_mode") == Some("sentinel") {
        cause.push_str(" (the server is a sentinel)");
    }
    if let Some(version) = info::field(facts, "redis_version").filter(|version| is_too_old(version)) {
        cause = format!("Redis {version} is too old; expected 6.2 or later: {cause}");
    }
    cause
}

/// Sends a command to the server that decides a key.
async fn ask(store: &RedisStore, key: &CellKey, command: &Cmd) -> Result<::redis::Value, SendError> {
    let reply = async { store.shared.servers.connection(key.slot()).await?.send(command).await };
    timeout(MIN_TIMEOUT, reply).await.unwrap_or(Err(SendError::Timeout))
}

/// A charge of a counter that no request can name, which ends within a second.
fn probe(key: CellKey) -> TagRequest {
    let quota = Quota { limit: u32::MAX.into(), window: Window::of(Unit::Second) };
    let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
    let check = Check::own(RecordId::alone(Algorithm::FixedWindow), policy, Hits::ONE);
    TagRequest::new(Charging::Independent, key, check)
}

/// Codes of errors of a master that fails. Decisions of the other masters of a cluster suffice meanwhile.
const OUTAGE_CODES: [&str; 8] =
    ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY"];

/// Parts of reasons why a server refuses a connection, until its set-up or that of this instance changes.
const SETUP_REASONS: [&str; 5] = ["NOAUTH", "NOPERM", "WRONGPASS", "without any password", "certificate"];

/// Whether the error is of one master that fails, rather than of the set-up.
fn is_outage(error: &StoreError) -> bool {
    match error {
        StoreError::Declined(reason) | StoreError::Refused(reason) => {
            // A server before Redis 7 nests the error in the error of the script.
            let has = |code: &str| reason.starts_with(code) || reason.contains(&format!(": -{code}"));
            OUTAGE_CODES.into_iter().any(has)
        }
        StoreError::Unreachable(reason) => !SETUP_REASONS.iter().any(|text| reason.contains(text)),
        StoreError::MalformedReply => false,
        _ => true,
    }
}

/// The reason of an error, without its kind.
fn words(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable(reason)
        | StoreError::Disconnected(reason)
        | StoreError::Declined(reason)
        | StoreError::Refused(reason) => reason.clone(),
        other => other.to_string(),
    }
}

fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version < MIN_VERSION)
}

/// Remedies, each in a line after the texts by which its causes are recognized; the first one applies.
const REMEDIES: &str = include_str!("remedies.txt");

/// The remedy of a cause.
fn remedy(cause: &str) -> &'static str {
    let mut all = REMEDIES.lines().filter_map(|line| line.split_once(" => "));
    let found = all.find(|(texts, _)| texts.split(" | ").any(|text| cause.contains(text)));
    found.map_or("see the requirements in docs/guides/redis.md", |(_, remedy)| remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_remedy() {
        for (cause, expected) in [
            ("NOAUTH Authentication required.", "set the password"),
            (
                "no sentinel responds; last error: NOAUTH Authentication required.",
                "set the login of the sentinels",
            ),
            ("WRONGPASS invalid username-password pair or user is disabled.", "correct the user"),
            ("NOPERM this user has no permissions to run the 'set' command", "permit the user"),
            ("READONLY You can't write against a read only replica. script: 0a", "the server is a replica"),
            ("CROSSSLOT Keys in request don't hash to the same slot", "the server is a node"),
            ("ERR unknown command 'EVALSHA' (the server is a sentinel)", "connect by redis+sentinel"),
            ("ERR unknown command 'EVALSHA'", "use a server"),
            ("Redis 6.0.16 is too old; expected 6.2 or later: ERR syntax error", "upgrade Redis"),
            ("Connection refused (os error 111)", "start Redis"),
            ("ERR something else", "see the requirements"),
        ] {
            assert!(remedy(cause).starts_with(expected), "{cause}: {}", remedy(cause));
        }
    }

    #[test]
    fn a_master_that_fails_is_no_mistake_of_the_set_up() {
        let failing = [
            "OOM command not allowed",
            "MISCONF Redis is configured",
            "READONLY You can't write",
            "ERR Error running script (call to f_0a): @user_script:7: @user_script: 7: -OOM command not allowed",
        ];
        assert!(failing.into_iter().all(|reason| is_outage(&StoreError::Declined(reason.to_owned()))));
        assert!(is_outage(&StoreError::Unreachable("Connection refused (os error 111)".to_owned())));
        for reason in ["NOPERM this user has no permissions", "CROSSSLOT Keys in request"] {
            assert!(!is_outage(&StoreError::Declined(reason.to_owned())), "{reason}");
        }
        for reason in ["WRONGPASS invalid username-password pair", "invalid peer certificate: UnknownIssuer"]
        {
            assert!(!is_outage(&StoreError::Unreachable(reason.to_owned())), "{reason}");
        }
    }

    #[test]
    fn redis_before_6_2_is_too_old() {
        let versions = ["2.8.24", "5.0.14", "6.0.16", "6.2.0", "7.0.15", "10.0.1", "255.255.255", "x", ""];
        assert_eq!(versions.map(is_too_old), [true, true, true, false, false, false, false, false, false]);
    }
}
