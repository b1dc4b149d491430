//! Laws of the book, on random histories of operators, instances with and without files, and losses of a real Redis.
//!
//! - *Conservation*: the latest known change of a record stays known, unless all that held it were destroyed, and never
//!   yields to an earlier one.
//! - *Condition*: a change that expects a revision is made only on that revision.
//! - *Convergence*: once all instances have reconciled, they and the store hold the same, at one revision.
//! - *Audit*: without a loss, each acknowledged change has one entry.
//!
//! `docs/internals/book.md` states them for readers. Each is also shown to fail for a script that breaks it. More histories:
//! `TOLLGATE_HISTORIES=10000 cargo test --release -p tollgate-control laws`.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::{env, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tollgate_rules::List;
use tollgate_store::redis::{RedisSettings, Script};

use super::super::*;
use crate::book::{ChangeResult, Expected, NewChange, Record, RecordKey};
use crate::redis::{BOOK_KEYS, BOOK_SCRIPT, Redis, book};
use crate::{Action, AuditEntry, Instance, ListEntry, RulesSource};

/// Copies each of the first keys to the one in its place of the others.
const COPY: &str = "for i = 1, #KEYS / 2 do \
    if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('COPY', KEYS[i], KEYS[#KEYS / 2 + i], 'REPLACE') \
    else redis.call('DEL', KEYS[#KEYS / 2 + i]) end end return 1";
const FLUSH: &str = "redis.call('DEL', unpack(KEYS)) return 1";

/// A server that ends with the test.
struct Server {
    process: Child,
    _directory: TempDir,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let program = env::var("TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--port"]);
        command.arg(port.to_string()).current_dir(&directory).stdout(Stdio::null());
        let process = command.spawn().expect("redis-server is installed; `tests/run.sh` installs it");
        Self { process, _directory: directory, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Latest change of each record.
type Known = BTreeMap<RecordKey, (u64, Option<String>)>;

fn value_of(record: Option<&Record>) -> Option<String> {
    match record? {
        Record::ListEntry(entry) => Some(entry.reason.clone()),
        other => unreachable!("{other:?}"),
    }
}

fn known(changes: impl IntoIterator<Item = crate::book::RecordChange>) -> Known {
    changes
        .into_iter()
        .map(|change| (change.key, (change.revision, value_of(change.record.as_ref()))))
        .collect()
}

fn latest(all: impl IntoIterator<Item = Known>) -> Known {
    let mut latest = Known::new();
    for (key, change) in all.into_iter().flatten() {
        let entry = latest.entry(key).or_insert_with(|| change.clone());
        if entry.0 < change.0 {
            *entry = change;
        }
    }
    latest
}

/// State of a history: what holds records, and what was done.
struct History {
    server: u16,
    prefix: String,
    script: &'static str,
    directory: TempDir,
    instances: Vec<Simulated>,
    random: fastrand::Rng,
    acknowledged: usize,
    has_losses: bool,
    /// Content of the store at the last snapshot.
    snapshot: Known,
}

struct Simulated {
    control: Control,
    file: Option<PathBuf>,
}

/// Why a history breaks a law.
type Outcome = Result<(), &'static str>;

impl History {
    async fn new(server: u16, seed: u64, script: &'static str) -> Self {
        let mut history = Self {
            server,
            prefix: format!("{seed}:"),
            script,
            directory: tempfile::tempdir().expect("a directory"),
            instances: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            acknowledged: 0,
            has_losses: false,
            snapshot: Known::new(),
        };
        for number in 0..3 {
            let file = (number == 0).then(|| history.directory.path().join("records"));
            let control = history.open(file.as_ref());
            history.instances.push(Simulated { control, file });
        }
        history
    }

    fn open(&self, file: Option<&PathBuf>) -> Control {
        let settings = RedisSettings {
            servers: format!("redis://127.0.0.1:{}", self.server).parse().expect("a valid URL"),
            timeout: Duration::from_secs(5),
            key_prefix: self.prefix.clone(),
            ca_certificate: None,
            client_certificate: None,
            samples_servers: false,
        };
        let mut control = Control::redis(RulesSource::Directory, &settings).expect("valid settings");
        let inner = Arc::get_mut(&mut control.0).expect("not shared yet");
        if let Backend::Redis(redis) = &mut inner.backend {
            redis.client.book_script = Script::new(self.script);
        }
        if let Some(file) = file {
            control.open_records(file.clone()).expect("usable");
        }
        control
    }

    fn any(&mut self) -> usize {
        self.random.usize(..self.instances.len())
    }

    fn redis(&self) -> &Redis {
        self.instances[0].control.shared_store().expect("in Redis")
    }

    async fn stored(&self) -> Known {
        let (mut all, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let page = book::since(&self.redis().client, BookName::Operators, from, false).await;
            let page = page.expect("a reply");
            next = page.next;
            all.extend(page.changes().0);
        }
        known(all)
    }

    fn held(&self, at: usize) -> Known {
        let book = self.instances[at].control.0.book(BookName::Operators);
        known(book.with(|book| book.changes_since(0, 0).collect::<Vec<_>>()))
    }

    async fn all_known(&self) -> Known {
        let held = (0..self.instances.len()).map(|at| self.held(at));
        latest(held.chain([self.stored().await]))
    }

    /// Runs a script on the keys of the store, and then on those of the snapshot, or in the other order.
    async fn run(&self, script: &'static str, places: &[&str]) {
        let redis = self.redis();
        let named = |place: &&str| BOOK_KEYS.map(|key| redis.client.keys.named(&format!("{place}{key}")));
        let keys: Vec<Vec<u8>> = places.iter().flat_map(named).collect();
        let slot = tollgate_store::key::slot_of(b"tollgate-rules");
        let script = Script::new(script);
        redis.client.store.run(&script, slot, &keys, &[], Duration::from_secs(5)).await.expect("run");
    }

    async fn reconcile(&self, at: usize) {
        let control = &self.instances[at].control;
        let instance = Instance {
            id: at.to_string(),
            program: String::new(),
            version: None,
            fingerprint: String::new(),
            generation: 0,
            started_at_ms: 0,
            seen_at_ms: 0,
            region_generation: None,
            active_domains: Vec::new(),
            problem: None,
        };
        let head = control.heartbeat(instance, None).await.expect("a reply");
        for (name, store) in BookName::ALL.into_iter().zip(&head.books) {
            let held = control.0.book(name).head();
            // It fails if the store loses something meanwhile.
            let _ = apply(control, name, Plan::of(&held, store), held, store).await;
        }
    }

    /// A change by an operator.
    async fn change(&mut self) -> Outcome {
        let (at, id) = (self.any(), self.random.u8(..4).to_string());
        let key = RecordKey::of_entry(&id);
        let value = (self.random.u8(..3) > 0).then(|| format!("{:x}", self.random.u32(..)));
        let entry = |reason| ListEntry {
            id,
            list: List::Deny,
            domain: "d".into(),
            descriptor: Vec::new(),
            reason,
            author: "ada".into(),
            created_at_ms: 1,
            expires_at_ms: None,
        };
        let control = self.instances[at].control.clone();
        let held = control.0.book(BookName::Operators).with(|book| book.revision_of(key, 0));
        let expected = match (&value, held) {
            (_, Some(revision)) if self.random.bool() => Expected::Revision(revision),
            (None, _) => Expected::Present,
            (Some(_), _) => Expected::Any,
        };
        let before = self.stored().await.get(&key).filter(|(_, value)| value.is_some()).map(|(at, _)| *at);
        let audit = AuditEntry::new("ada", Action::AddEntry, String::new(), String::new());
        let record = value.clone().map(|value| Record::ListEntry(entry(value)));
        let change = NewChange { key, expected, record, audit: Some(audit) };
        let Ok((revision, results)) = control.make(BookName::Operators, vec![change]).await else {
            // The store has lost its state, which is to be restored first.
            return Ok(());
        };
        let is_made = results == [ChangeResult::Made];
        if is_made != expected.is_met(before) {
            return Err("condition");
        }
        if is_made {
            self.acknowledged += 1;
            if self.stored().await.get(&key) != Some(&(revision, value)) {
                return Err("conservation");
            }
        }
        Ok(())
    }

    /// A step, after which all must be known that is known before by what it does not destroy.
    async fn step(&mut self) -> Outcome {
        let held: Vec<Known> = (0..self.instances.len()).map(|at| self.held(at)).collect();
        let remaining = match self.random.u8(..26) {
            0..12 => {
                let before = self.all_known().await;
                self.change().await?;
                before
            }
            12..18 => {
                let (before, at) = (self.all_known().await, self.any());
                self.reconcile(at).await;
                before
            }
            18..20 => {
                let at = self.any();
                let file = self.instances[at].file.clone();
                let others = (0..held.len()).filter(|other| *other != at || file.is_some());
                let remaining = latest(others.map(|at| held[at].clone()).chain([self.stored().await]));
                // The former one unlocks the file.
                let placeholder = Control::memory(RulesSource::Directory);
                drop(std::mem::replace(&mut self.instances[at].control, placeholder));
                self.instances[at].control = self.open(file.as_ref());
                remaining
            }
            20..22 => {
                self.snapshot = self.stored().await;
                self.run(COPY, &["", "snapshot-"]).await;
                self.all_known().await
            }
            22 => {
                self.has_losses = true;
                self.run(COPY, &["snapshot-", ""]).await;
                latest(held.into_iter().chain([self.snapshot.clone()]))
            }
            23 => {
                self.has_losses = true;
                self.run(FLUSH, &[""]).await;
                latest(held)
            }
            // A loss while an instance reconciles.
            _ => {
                self.has_losses = true;
                let (at, is_flush) = (self.any(), self.random.bool());
                let lose = async {
                    match is_flush {
                        true => self.run(FLUSH, &[""]).await,
                        false => self.run(COPY, &["snapshot-", ""]).await,
                    }
                };
                tokio::join!(self.reconcile(at), lose);
                latest(held.into_iter().chain((!is_flush).then(|| self.snapshot.clone())))
            }
        };
        let now = self.all_known().await;
        let is_known = |(key, (revision, value)): (&RecordKey, &(u64, Option<String>))| {
            now.get(key)
                .is_some_and(|(later, found)| later > revision || (later == revision && found == value))
        };
        if remaining.iter().all(is_known) { Ok(()) } else { Err("conservation") }
    }

    async fn run_to_end(mut self, steps: usize) -> Outcome {
        for _ in 0..steps {
            self.step().await?;
        }
        for round in 0..6 {
            self.reconcile(round % 3).await;
        }
        for round in 0..3 {
            self.reconcile(round).await;
        }
        let (stored, head) =
            (self.stored().await, self.instances[0].control.0.book(BookName::Operators).head());
        for at in 0..self.instances.len() {
            let book = self.instances[at].control.0.book(BookName::Operators);
            if self.held(at) != stored || book.head().revision != head.revision {
                return Err("convergence");
            }
        }
        let audit = self.instances[0].control.audit(None, 1_000).await.expect("a reply");
        if !self.has_losses && audit.len() != self.acknowledged {
            return Err("audit");
        }
        Ok(())
    }
}

/// The law that a history of this number breaks, if it does.
async fn first_broken(
    server: &Server,
    seeds: std::ops::Range<u64>,
    script: &'static str,
) -> Option<(u64, &'static str)> {
    for seed in seeds {
        if let Err(law) = History::new(server.port, seed, script).await.run_to_end(24).await {
            return Some((seed, law));
        }
    }
    None
}

#[tokio::test]
async fn histories_keep_the_laws() {
    let histories = env::var("TOLLGATE_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    assert_eq!(first_broken(&Server::start(), 0..histories, BOOK_SCRIPT).await, None);
}

#[tokio::test]
async fn a_script_that_breaks_a_law_is_found() {
    let server = Server::start();
    let broken = [
        (&["conservation", "convergence"][..], "not known or tonumber(known) < revision", "not known"),
        (&["conservation", "convergence"][..], "not known or tonumber(known) < revision", "true"),
        (
            &["conservation", "convergence"],
            "local common = ARGV[6] == 'head' and common_revision(ARGV[4])",
            "local common",
        ),
        (&["condition"], "return 'unlike'", "return 'made'"),
        (&["conservation", "convergence"][..], "redis.call('ZADD', set.removals, revision, id)", ""),
        (&["audit"], "      append(now, ARGV[i + 4])", ""),
    ];
    for (at, (laws, text, other)) in broken.into_iter().enumerate() {
        assert_eq!(BOOK_SCRIPT.matches(text).count(), 1, "{text}");
        let script: &'static str = BOOK_SCRIPT.replace(text, other).leak();
        let first = 1_000_000 * (at as u64 + 1);
        let found = first_broken(&server, first..first + 500, script).await;
        assert!(found.is_some_and(|(_, law)| laws.contains(&law)), "{text}: {found:?}");
    }
}
