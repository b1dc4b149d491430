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

use tollgate::config::{Options, load_files};
use tollgate::control::{
    AuditEntry, AutomaticEntry, Draft, Files, List, ListEntry, ListPair, ListedBan, Pair, Reconciler,
    RulesSource, RulesStatus, Switch, SwitchMode,
};
use tollgate::{ban::BanMode, clock::Clock, limiter::ActiveRules};

use crate::support::{prelude::*, timing::mostly_keep_to};

/// A control plane on a Redis.
fn redis_control(url: &str, prefix: &str) -> Control {
    let settings = RedisSettings { key_prefix: prefix.into(), ..settings(url) };
    Control::redis(RulesSource::Redis, &settings).expect("valid settings")
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
    denied(value, "*", "k", value)
}

/// An entry that denies a value in a domain.
pub(crate) fn denied(id: &str, domain: &str, key: &str, value: &str) -> ListEntry {
    ListEntry {
        id: id.into(),
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
