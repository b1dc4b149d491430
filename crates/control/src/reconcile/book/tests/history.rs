//! Histories of a book: operators or the system, instances with and without files, and losses of a real Redis.

use std::collections::BTreeMap;
use std::{path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::time::timeout;
use tollgate_rules::List;
use tollgate_store::redis::{RedisSettings, Script};

use super::super::*;
use crate::RecordKey;
use crate::book::{BookReplica, ChangeResult, Expected, NewChange, Record};
use crate::model::SYSTEM_AUTHOR;
use crate::redis::{BOOK_KEYS, Redis, book};
use crate::{Action, AuditEntry, AutomaticEntry, AutomaticMode, Instance, ListEntry, RulesSource};

/// Copies each of the first keys to the one in its place of the others.
pub(super) const COPY: &str = "for i = 1, #KEYS / 2 do \
    if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('COPY', KEYS[i], KEYS[#KEYS / 2 + i], 'REPLACE') \
    else redis.call('DEL', KEYS[#KEYS / 2 + i]) end end return 1";
pub(super) const FLUSH: &str = "redis.call('DEL', unpack(KEYS)) return 1";

/// Rounds of all instances until which they and the store are equal.
const MAX_ROUNDS: usize = 10;

/// Time in which the clock of the test and that of the script may differ in what has ended.
const END_MARGIN_MS: u64 = 15;

/// Change of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    revision: u64,
    pub(super) record: Option<Record>,
}

impl Change {
    /// The change at a time: that of a record that has ended is a removal.
    fn at(self, now_ms: u64) -> Self {
        if self.ends_at_ms() <= now_ms { Self { record: None, ..self } } else { self }
    }

    fn ends_at_ms(&self) -> u64 {
        self.record.as_ref().and_then(Record::ends_at_ms).unwrap_or(u64::MAX)
    }
}

/// Latest change of each record.
pub(super) type Known = BTreeMap<RecordKey, Change>;

fn known(changes: impl IntoIterator<Item = crate::book::RecordChange>) -> Known {
    let change = |change: crate::book::RecordChange| {
        (change.key, Change { revision: change.revision, record: change.record })
    };
    changes.into_iter().map(change).collect()
}

fn latest(all: impl IntoIterator<Item = Known>) -> Known {
    let mut latest = Known::new();
    for (key, change) in all.into_iter().flatten() {
        let entry = latest.entry(key).or_insert_with(|| change.clone());
        if entry.revision < change.revision {
            *entry = change;
        }
    }
    latest
}

/// State of a history: what holds records, and what was done.
pub(super) struct History {
    server: u16,
    book: BookName,
    prefix: String,
    script: &'static str,
    directory: TempDir,
    pub(super) instances: Vec<Simulated>,
    random: fastrand::Rng,
    acknowledged: usize,
    has_losses: bool,
    /// Content of the store at the last snapshot.
    pub(super) snapshot: Known,
}

pub(super) struct Simulated {
    pub(super) control: Control,
    file: Option<PathBuf>,
}

pub(super) fn list_entry(domain: String, reason: String, expires_at_ms: Option<u64>) -> Record {
    Record::ListEntry(ListEntry {
        list: List::Deny,
        domain,
        descriptor: Vec::new(),
        reason,
        author: "ada".into(),
        created_at_ms: 1,
        expires_at_ms,
    })
}

/// Why a history breaks a law.
pub(super) type Outcome = Result<(), &'static str>;

impl History {
    pub(super) async fn new(server: u16, seed: u64, script: &'static str) -> Self {
        let mut history = Self {
            server,
            book: if seed % 4 == 3 { BookName::System } else { BookName::Operators },
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
            let has_file = number == 0 && history.book == BookName::Operators;
            let file = has_file.then(|| history.directory.path().join("records"));
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
            // A task of the former instance may still write it.
            let mut attempts = (0..1_000).map(|_| control.open_records(file.clone()));
            let is_open = attempts
                .any(|opened| opened.inspect_err(|_| std::thread::sleep(Duration::from_millis(2))).is_ok());
            assert!(is_open, "the file stays locked");
        }
        control
    }

    fn any(&mut self) -> usize {
        self.random.usize(..self.instances.len())
    }

    pub(super) fn redis(&self) -> &Redis {
        self.instances[0].control.shared_store().expect("in Redis")
    }

    pub(super) async fn stored(&self) -> Known {
        let (mut all, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let page = book::since(&self.redis().client, self.book, from, false).await;
            let page = page.expect("a reply");
            next = page.next;
            all.extend(page.changes().0);
        }
        known(all)
    }

    fn held(&self, at: usize) -> Known {
        let book = self.instances[at].control.0.book(self.book);
        known(book.with(|book| book.changes_since(0, 0).collect::<Vec<_>>()))
    }

    async fn all_known(&self) -> Known {
        let held = (0..self.instances.len()).map(|at| self.held(at));
        latest(held.chain([self.stored().await]))
    }

    /// Runs a script on the keys of the store, and then on those of the snapshot, or in the other order.
    pub(super) async fn run(&self, script: &'static str, places: &[&str]) {
        let redis = self.redis();
        let book = match self.book {
            BookName::Operators => "",
            BookName::System => "system-",
        };
        let named =
            |place: &&str| BOOK_KEYS.map(|key| redis.client.keys.named(&format!("{place}{book}{key}")));
        let keys: Vec<Vec<u8>> = places.iter().flat_map(named).collect();
        let slot = tollgate_store::key::slot_of(b"tollgate-rules");
        let script = Script::new(script);
        redis.client.store.run(&script, slot, &keys, &[], Duration::from_secs(5)).await.expect("run");
    }

    pub(super) async fn reconcile(&self, at: usize) {
        let control = &self.instances[at].control;
        for (name, store) in BookName::ALL.into_iter().zip(&self.heads(at).await) {
            let held = control.0.book(name).head();
            // It fails if the store loses something meanwhile.
            let _ = apply(control, name, Plan::of(&held, store), held, store).await;
        }
    }

    /// Whether no instance has anything to do.
    async fn is_settled(&self) -> bool {
        for at in 0..self.instances.len() {
            let held = self.instances[at].control.0.books().map(BookReplica::head);
            if held
                .iter()
                .zip(&self.heads(at).await)
                .any(|(held, store)| Plan::of(held, store) != Plan::Nothing)
            {
                return false;
            }
        }
        true
    }

    /// The heads of the store's books, as a heartbeat of an instance reads them.
    pub(super) async fn heads(&self, at: usize) -> [BookHead; 2] {
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
        for _ in 0..MAX_ROUNDS {
            // A heartbeat is not repeated, and a busy machine may be late.
            if let Ok(head) = self.instances[at].control.heartbeat(instance.clone(), None).await {
                return head.books;
            }
        }
        panic!("no reply")
    }

    /// A change by an operator.
    async fn change(&mut self) -> Outcome {
        let (at, record) = (self.any(), self.any_record());
        let key = record.key();
        let record = (self.random.u8(..3) > 0).then_some(record);
        let control = self.instances[at].control.clone();
        let held = control.0.book(self.book).with(|book| book.revision_of(key, 0));
        let expected = match (&record, held) {
            (_, Some(revision)) if self.random.bool() => Expected::Revision(revision),
            (None, _) => Expected::Present,
            (Some(_), _) if self.random.u8(..4) == 0 => Expected::Absent,
            (Some(_), _) => Expected::Any,
        };
        let before = self.stored().await.remove(&key).filter(|change| change.record.is_some());
        let author = if self.book == BookName::System { SYSTEM_AUTHOR } else { "ada" };
        let audit = AuditEntry::new(author, Action::AddEntry, String::new(), String::new());
        let change = NewChange { key, expected, record: record.clone(), audit: Some(audit) };
        let begun = now_ms();
        let Ok((revision, results)) = control.make(self.book, vec![change]).await else {
            // The store has lost its state, which is to be restored first.
            return Ok(());
        };
        let is_made = results == [ChangeResult::Made];
        let end = before.as_ref().map_or(u64::MAX, Change::ends_at_ms);
        let before = before.filter(|_| end > begun).map(|change| change.revision);
        let is_ending = begun < end.saturating_add(END_MARGIN_MS) && end < now_ms() + END_MARGIN_MS;
        if !is_ending && is_made != expected.is_met(before) {
            return Err("condition");
        }
        if is_made {
            self.acknowledged += 1;
            let stored = self.stored().await.remove(&key);
            if !stored.is_some_and(|stored| stored.revision == revision && stored.record == record) {
                return Err("conservation");
            }
        }
        Ok(())
    }

    /// One of four records of the book, with a random value, and now and then an end that comes soon.
    fn any_record(&mut self) -> Record {
        let (domain, reason) = (self.random.u8(..4).to_string(), format!("{:x}", self.random.u32(..)));
        let end = (self.random.u8(..4) == 0).then(|| now_ms() + self.random.u64(1..100));
        match self.book {
            BookName::Operators => list_entry(domain, reason, end),
            BookName::System => Record::Automatic(AutomaticEntry {
                mode: AutomaticMode::Enforce,
                domain,
                descriptor: Vec::new(),
                rule: String::new(),
                reason,
                author: SYSTEM_AUTHOR.into(),
                created_at_ms: 1,
                expires_at_ms: end.unwrap_or(u64::MAX >> 11),
                level: 1,
            }),
        }
    }

    /// A step, after which all must be known that is known before by what it does not destroy.
    async fn step(&mut self) -> Outcome {
        let held: Vec<Known> = (0..self.instances.len()).map(|at| self.held(at)).collect();
        let remaining = match self.random.u8(..28) {
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
            // An instance that is interrupted while it reconciles.
            24..26 => {
                let (before, at) = (self.all_known().await, self.any());
                let end = Duration::from_micros(self.random.u64(..3_000));
                let _ = timeout(end, self.reconcile(at)).await;
                before
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
        let (now, latest_ms) = (self.all_known().await, now_ms() + END_MARGIN_MS);
        let is_known = |(key, change): (&RecordKey, &Change)| {
            now.get(key).is_some_and(|found| {
                found.revision > change.revision
                    || found.clone().at(latest_ms) == change.clone().at(latest_ms)
            })
        };
        if remaining.iter().all(is_known) { Ok(()) } else { Err("conservation") }
    }

    pub(super) async fn run_to_end(mut self, steps: usize) -> Outcome {
        for _ in 0..steps {
            self.step().await?;
        }
        let mut rounds = 0;
        while rounds < 3 || (rounds < MAX_ROUNDS && !self.is_settled().await) {
            for at in 0..self.instances.len() {
                self.reconcile(at).await;
            }
            rounds += 1;
        }
        let (stored, head) = (self.stored().await, self.instances[0].control.0.book(self.book).head());
        let held: Vec<Known> = (0..self.instances.len()).map(|at| self.held(at)).collect();
        let now_ms = now_ms() + END_MARGIN_MS;
        let at_once = |known: Known| -> Known {
            known.into_iter().map(|(key, change)| (key, change.at(now_ms))).collect()
        };
        let stored = at_once(stored);
        for (at, held) in held.into_iter().enumerate() {
            let book = self.instances[at].control.0.book(self.book);
            if at_once(held) != stored || book.head().revision != head.revision {
                return Err("convergence");
            }
            let runtime = book.with(|book| book.runtime(now_ms));
            let active = stored.values().filter(|change| change.record.is_some()).count();
            if runtime.entries.len() + runtime.automatic.len() != active {
                return Err("ends");
            }
        }
        let audit = self.instances[0].control.audit(None, 1_000).await.expect("a reply");
        if !self.has_losses && audit.len() != self.acknowledged {
            return Err("audit");
        }
        Ok(())
    }
}
