//! Laws of the book, on random histories of operators or of the system, instances with and without files, and losses of a real
//! Redis.
//!
//! - *Conservation*: the latest known change of a record stays known, unless all that held it were destroyed, and never
//!   yields to an earlier one.
//! - *Condition*: a change that expects a revision is made only on that revision.
//! - *Ends*: a record that has ended is neither active nor counted by a condition, and what it had replaced never returns.
//! - *Convergence*: once all instances have reconciled, they and the store hold the same, at one revision.
//! - *Audit*: without a loss, each acknowledged change has one entry.
//!
//! `docs/internals/book.md` states them for readers. Each is also shown to fail for a script that breaks it. More histories:
//! `TOLLGATE_HISTORIES=10000 cargo test --release -p tollgate-control laws`.

use std::{env, time::Duration};

use tokio::time::sleep;
use tollgate_core::clock::now_ms;

use super::super::plan::Plan;
use super::history::{COPY, FLUSH, History, list_entry};
use super::server::Server;
use crate::book::{BookName, NewChange, RecordChange};
use crate::redis::BOOK_SCRIPT;
use crate::redis::book::{CopySources, CopyStep, adopt};
use crate::{Action, AuditEntry, Control, RecordsHead};

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
        (&["conservation", "convergence"], "apply(ACTIVE, id, revision, '0', '')", "drop(ACTIVE, id)"),
    ];
    for (at, (laws, text, other)) in broken.into_iter().enumerate() {
        assert_eq!(BOOK_SCRIPT.matches(text).count(), 1, "{text}");
        let script: &'static str = BOOK_SCRIPT.replace(text, other).leak();
        let first = 1_000_000 * (at as u64 + 1);
        let found = first_broken(&server, first..first + 500, script).await;
        assert!(found.is_some_and(|(_, law)| laws.contains(&law)), "{text}: {found:?}");
    }
}

fn audit() -> AuditEntry {
    AuditEntry::new("ada", Action::AddEntry, String::new(), String::new())
}

#[tokio::test]
async fn a_copy_with_changes_that_its_writer_has_lost_begins_anew() {
    let server = Server::start();
    let mut history = History::new(server.port, 0, BOOK_SCRIPT).await;
    let put = |id: &str| {
        let record = list_entry(id.to_owned(), String::new(), None);
        NewChange::put(record, audit())
    };
    let [writer, other] = [0, 1].map(|at| history.instances[at].control.clone());
    let change = async |control: &Control, value: &str| {
        control.make(BookName::Operators, vec![put(value)]).await.expect("made").0
    };
    let copy_of = async |revision: u64, is_continued: bool| {
        let head = writer.rules_after("").await.expect("a reply").records.expect("a head");
        let known = RecordsHead { revision, ..head };
        writer.records_after(&known, is_continued).await.expect("a reply").is_whole
    };
    change(&writer, "a").await;
    history.snapshot = history.stored().await;
    history.run(COPY, &["", "snapshot-"]).await;
    let lost = change(&writer, "b").await;
    assert!(!copy_of(lost, false).await);
    history.run(COPY, &["snapshot-", ""]).await;
    let last = change(&other, "c").await;
    assert!(copy_of(lost, false).await && !copy_of(last, false).await);
    // A page ends at any revision.
    assert!(!copy_of(lost, true).await);
}

#[tokio::test]
async fn a_restoration_that_is_never_finished_is_fetched_once() {
    let server = Server::start();
    let script =
        BOOK_SCRIPT.replace("MAX_REMOVALS, MAX_SWEPT = 10000", "MAX_REMOVALS, MAX_SWEPT = 2").replace(
            "if ARGV[8] == 'more' then",
            "if ARGV[8] == 'last' then return 'lost' end if ARGV[8] == 'more' then",
        );
    assert_eq!(script.len(), BOOK_SCRIPT.len() - 4 + "if ARGV[8] == 'last' then return 'lost' end ".len());
    let history = History::new(server.port, 0, script.leak()).await;
    let operators = BookName::Operators;
    for id in 0..6 {
        let record = list_entry(id.to_string(), String::new(), None);
        let put = NewChange::put(record, audit());
        for change in [put.clone(), NewChange { record: None, ..put }] {
            history.instances[0].control.make(operators, vec![change]).await.expect("made");
            history.reconcile(0).await;
        }
    }
    history.run(FLUSH, &[""]).await;
    history.reconcile(0).await;
    history.reconcile(1).await;
    let [store, _] = history.heads(1).await;
    assert!(store.floor > 0);
    assert_eq!(Plan::of(&history.instances[1].control.0.book(operators).head(), &store), Plan::Nothing);
}

#[tokio::test]
async fn a_copy_drops_records_that_have_ended() {
    let server = Server::start();
    let history = History::new(server.port, 0, BOOK_SCRIPT).await;
    let record = list_entry("a".to_owned(), String::new(), Some(now_ms() + 20));
    let key = record.key();
    let change = RecordChange { revision: 5, key, record: Some(record) };
    for (before, from, changes) in [("", 0, &[change][..]), ("w", 5, &[])] {
        let sources = CopySources { before, after: "w", revision: from + 5 };
        let (client, step) = (&history.redis().client, CopyStep::Part { from });
        assert!(adopt(client, step, sources, changes, &audit()).await.expect("a reply"));
        sleep(Duration::from_millis(40)).await;
    }
    assert_eq!(history.stored().await[&key].record, None);
}
