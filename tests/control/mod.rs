//! Changes by operators: the contract of each store, and how changes take effect.

mod contract;
mod copies;
mod divergence;
mod gradual;
mod instances;
mod outages;
mod overrides;
mod script;
mod isolation;
mod propagation;
mod raised_limits;

use std::future::pending;

use tollgate::config::{Options, load_files};
use tollgate::control::{
    AuditEntry, AutomaticEntry, ControlResult, Draft, Files, List, ListEntry, ListPair, ListedBan, Pair,
    Reconciler, Record, RecordView, RecordsHead, RulesSource, RulesStatus, Runtime, Switch, SwitchMode,
};
use tollgate::{ban::BanMode, clock::Clock, limiter::ActiveRules};

use crate::support::{prelude::*, timing::mostly_keep_to};

/// A control plane on a Redis, of an operator: no instance, so it holds no records, and waits a second for a change of them.
fn redis_control(url: &str, prefix: &str) -> Control {
    let settings = RedisSettings { key_prefix: prefix.into(), ..settings(url) };
    Control::redis(RulesSource::Redis, &settings).expect("valid settings")
}

/// The control plane of an instance, which holds the records and enforces them while the test runs.
pub(crate) fn reconciled(control: Control) -> Control {
    let active = Arc::<ActiveRules>::default();
    let reconciler = Reconciler::start(&control, RulesStatus::default(), active, None, Vec::new);
    tokio::spawn(async move {
        let _reconciler = reconciler;
        pending::<()>().await;
    });
    control
}

/// Waits until an instance holds lists and switches that are right.
async fn held(control: &Control, is_right: impl Fn(&Runtime) -> bool) -> Runtime {
    read_until(async || control.runtime().unwrap_or_default(), is_right).await
}

/// State of the records of a store, and the payload of each by its key; `None` if it does not reply in time.
async fn records_in(store: &Control) -> Option<(RecordsHead, BTreeMap<String, Vec<u8>>)> {
    let (mut known, mut all) = (RecordsHead::default(), BTreeMap::new());
    loop {
        let page = store.records_after(&known, known.revision > 0).await.ok()?;
        let head = page.head?;
        let revision = page.changes.last().map_or(head.revision, |change| change.revision);
        let put = page.changes.into_iter().filter(|change| !change.payload.is_empty());
        all.extend(put.map(|change| (change.id, change.payload)));
        if !page.has_more {
            return Some((head, all));
        }
        known = RecordsHead { revision, ..head };
    }
}

/// The payloads of the records in a store, by their keys.
async fn payloads_in(store: &Control) -> BTreeMap<String, Vec<u8>> {
    found("the store does not reply", async || records_in(store).await).await.1
}

/// The state of the records in a store.
async fn head_in(store: &Control) -> RecordsHead {
    found("the store does not reply", async || records_in(store).await).await.0
}

/// The list entries in a store, by their values.
async fn entries_in(store: &Control) -> BTreeMap<String, ListEntry> {
    let entry = |payload: &Vec<u8>| match serde_json::from_slice(payload).expect("a record") {
        Record::ListEntry(entry) => Some((entry.descriptor[0].value.clone(), entry)),
        _ => None,
    };
    payloads_in(store).await.values().filter_map(entry).collect()
}

/// The keys of a book, beside its audit log.
const BOOK_KEYS: [&str; 6] =
    ["book", "records", "record-revisions", "record-removals", "record-ends", "record-heads"];

/// A key of the control plane in Redis.
fn rules_key(name: &str) -> String {
    format!("{{tollgate-rules}}:{name}")
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}

/// Rules whose limit shows their version.
pub(crate) fn limit(limit: u32) -> String {
    format!("domain: web\ndescriptors:\n- key: k\n  rate_limit: {{unit: year, requests_per_unit: {limit}}}\n")
}

fn files(text: &str) -> Files {
    Files::from([("rules.yaml".to_owned(), text.to_owned())])
}

fn draft(based_on: Option<u64>, text: &str) -> Draft {
    Draft { files: files(text), based_on, rollback_to: None, author: "ada".into(), comment: "why".into() }
}

/// An entry that denies a value everywhere.
fn ban(value: &str) -> ListEntry {
    denied("*", "k", value)
}

/// An entry that denies a value in a domain.
pub(crate) fn denied(domain: &str, key: &str, value: &str) -> ListEntry {
    ListEntry {
        list: List::Deny,
        domain: domain.into(),
        descriptor: vec![ListPair::exact(key, value)],
        reason: String::new(),
        author: "ada".into(),
        created_at_ms: 1,
        expires_at_ms: None,
    }
}

/// A switch of a rule.
pub(crate) fn switched(domain: &str, rule: &str, mode: SwitchMode) -> Switch {
    Switch {
        domain: domain.into(),
        rule: rule.into(),
        mode,
        enforce_percent: None,
        ramp: None,
        reason: String::new(),
        author: "ada".into(),
        created_at_ms: 1,
        expires_at_ms: None,
    }
}

/// Puts a record. Not through an instance, it waits a second.
pub(crate) async fn put(control: &Control, record: Record) -> ControlResult<RecordView> {
    control.put_records(vec![(record, None)]).await.map(|mut views| views.remove(0))
}

/// Puts an entry.
pub(crate) async fn put_entry(control: &Control, entry: ListEntry) -> ControlResult<RecordView> {
    put(control, Record::ListEntry(entry)).await
}

/// Removes a record; whether it existed.
pub(crate) async fn remove(control: &Control, record: Record, author: &str) -> ControlResult<bool> {
    control.remove_record(record.key(), None, author, false).await.map(|removed| removed.is_some())
}

/// States a record to the admin API of an instance, and returns it.
fn put_by_api(instance: &Tollgate, stated: &Value, reason: &str) -> Value {
    let (status, answer) =
        api(instance, "PUT", "/records", Some(&json!({"records": [stated], "reason": reason})));
    assert_eq!(status, 200, "{answer}");
    answer["records"][0].clone()
}

/// Sends a request to the admin API of an instance.
fn api(instance: &Tollgate, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let body = body.map(Value::to_string);
    let answer = http::send(method, &instance.admin_url(&format!("/api/v1{path}")), &[], body.as_deref());
    (answer.status, serde_json::from_str(&answer.body).unwrap_or_default())
}

/// Reads all of the audit log, page by page.
async fn paged_audit(control: &Control) -> Vec<AuditEntry> {
    let mut page = control.audit(None, 2).await.expect("a reply");
    let mut all = page.clone();
    while let Some(last) = page.last() {
        page = control.audit(Some(&last.id), 2).await.expect("a reply");
        all.extend(page.clone());
    }
    all
}

/// The automatic entry for the third ban in a row of a value.
fn automatic(key: &str, value: &str, lasts: Duration) -> AutomaticEntry {
    let descriptor = vec![Pair { key: key.to_owned(), value: value.to_owned() }];
    let ends_at_ms = now_ms() + u64::try_from(lasts.as_millis()).expect("short");
    let ban = ListedBan {
        id: ListedBan::id_of("web", key, &descriptor),
        domain: "web".into(),
        rule: key.into(),
        descriptor,
        is_truncated: false,
        level: 3,
        mode: BanMode::Enforce,
        began_at_ms: now_ms(),
        ends_at_ms,
        instance: String::new(),
    };
    let entry = AutomaticEntry::of_ban(&ban).expect("valid");
    assert_eq!(entry.ban(), ListedBan { began_at_ms: entry.created_at_ms, ..ban });
    entry
}

/// The limit that decides a request, if rules do. A busy machine may keep the store from deciding in time.
async fn limit_of(client: &mut Client) -> Option<u32> {
    let answer = found("no answer", async || client.call(request("web", &[&[("k", "v")]])).await.ok()).await;
    Some(answer.statuses.first()?.current_limit.as_ref()?.requests_per_unit)
}

/// Waits until a limit is enforced for all clients, and returns how long that took.
async fn all_enforced(clients: &mut [Client], limit: u32, begun: Instant) -> Duration {
    for client in clients {
        enforced(client, limit, begun).await;
    }
    begun.elapsed()
}

/// Waits until a limit is enforced, and says how long that took.
async fn enforced(client: &mut Client, limit: u32, begun: Instant) -> Duration {
    read_until(async || limit_of(client).await, |found| *found == Some(limit)).await;
    begun.elapsed()
}
