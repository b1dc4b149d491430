use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::join_all};

use super::*;
use crate::{Action, Control, Draft, Files, RulesSource, stored::token};

fn draft(based_on: Option<u64>, text: &str) -> Draft {
    Draft {
        files: Files::from([("a.yaml".to_owned(), text.to_owned())]),
        based_on,
        rollback_to: None,
        author: "ada".to_owned(),
        comment: token(),
    }
}

#[tokio::test]
async fn a_file_has_all_changes() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.json");
    let open = || Control::memory(RulesSource::Memory, Some(file.clone())).expect("usable");
    let first = open();
    let made = first.apply(draft(None, "domain: a")).await.expect("made");
    first.record_audit("ada", Action::ResetCounter, "edge k=v", "by mistake").await.expect("noted");
    let audit = first.audit(None, 10).await;
    drop(first);
    let again = open();
    assert_eq!(again.versions(None, 10).await.expect("a response"), [made]);
    assert_eq!(again.version(1).await.expect("a response").expect("there").1["a.yaml"], "domain: a");
    assert_eq!(again.audit(None, 10).await, audit);
    assert!(!directory.path().join("rules.json.new").exists());
}

#[tokio::test]
async fn list_entries_of_an_earlier_release_keep_their_meaning() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.json");
    let text = r#"{"form": 1, "state": {"versions": {}, "runtime": {"generation": 1, "entries": [
        {"id": "1", "list": "deny", "domain": "d", "descriptor": [{"key": "k", "value": "ab*"}],
        "reason": "", "author": "ada", "created_at_ms": 1, "expires_at_ms": null}], "switches": []},
        "audit": [], "audited": 0}}"#;
    fs::write(&file, text).expect("written");
    let control = Control::memory(RulesSource::Memory, Some(file)).expect("usable");
    let entries = control.runtime().await.expect("a response").entries;
    assert_eq!(entries[0].descriptor, [crate::ListPair::pattern("k", "ab*")]);
}

#[tokio::test]
async fn a_damaged_file_is_an_error_that_names_it_and_quotes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.json");
    let state = "\"state\": {}";
    for (text, reason) in [
        (String::new(), "damaged at line 1"),
        ("{".to_owned(), "damaged at line 1"),
        ("{\"form\": \"sesame\"}".to_owned(), "damaged at line 1"),
        (format!("{{\n\"form\": 1,\n{state}}}"), "damaged at line 3"),
        (format!("{{{state}, \"form\": 9}}"), "unsupported format 9; expected 1"),
        ("{\"form\": 9, \"sesame\": [1]}".to_owned(), "unsupported format 9; expected 1"),
    ] {
        fs::write(&file, text).expect("written");
        let error =
            Control::memory(RulesSource::Memory, Some(file.clone())).expect_err("damaged").to_string();
        assert!(error.contains("rules.json") && error.contains(reason), "{error}");
        assert!(!error.contains("sesame"), "{error}");
    }
}

#[tokio::test]
async fn a_file_is_for_one_process_and_its_user() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.json");
    let open = || Control::memory(RulesSource::Memory, Some(file.clone()));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let first = open().expect("usable");
    assert!(open().expect_err("in use").to_string().ends_with("another process uses it"));
    first.apply(draft(None, "domain: a")).await.expect("made");
    assert_eq!((mode(&file), mode(&directory.path().join("rules.json.lock"))), (0o600, 0o600));
    // Neither a link beside the file nor its mode matters.
    let target = directory.path().join("target");
    std::os::unix::fs::symlink(&target, directory.path().join("rules.json.new")).expect("made");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
    first.apply(draft(Some(1), "domain: b")).await.expect("made");
    assert!(mode(&file) == 0o600 && !target.exists());
    drop(first);
    assert_eq!(open().expect("free again").current().await, Ok(Some(2)));
}

#[tokio::test]
async fn concurrent_changes_are_written_together_and_each_completes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.json");
    let (file, state) = RulesFile::open(path.clone()).expect("usable");
    let (disk, visible) = (Disk::new(file, Arc::new(state)), ArcSwap::default());
    let audit = |at: usize| AuditEntry::new("ada", Action::ResetCounter, format!("k={at}"), String::new());
    let mut waiting: Vec<_> = (0..500)
        .map(|at| disk.apply(|state| state.change(Change::AuditOnly, audit(at))).expect("made").written)
        .collect();
    assert!(waiting.iter_mut().all(|written| written.try_recv().is_err()), "nothing is on disk");
    let written = || fs::metadata(&path).expect("it is there").ino();
    let before = written();
    let (waiters, result) = disk.write(&visible);
    assert_eq!((waiters.len(), result, visible.load().audit(None, 1_000).len()), (500, Ok(()), 500));
    let after = written();
    assert_eq!(disk.write(&visible).0.len(), 0);
    assert!(before != after && after == written(), "there is one write");

    // The same through the public interface.
    drop(disk);
    let control = Control::memory(RulesSource::Memory, Some(path.clone())).expect("usable");
    let note = |at: usize| {
        let (control, subject) = (control.clone(), format!("k={at}"));
        async move { control.record_audit("ada", Action::ResetCounter, &subject, "").await }
    };
    assert!(join_all((0..500).map(note)).await.iter().all(Result::is_ok));
    drop(control);
    let again = Control::memory(RulesSource::Memory, Some(path)).expect("usable");
    assert_eq!(again.audit(None, 2_000).await.expect("a response").len(), 1_000);
}

#[test]
fn waiting_changes_are_bounded() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, state) = RulesFile::open(directory.path().join("rules.json")).expect("usable");
    let disk = Disk::new(file, Arc::new(state));
    let note = || AuditEntry::new("ada", Action::ResetCounter, "k=v".to_owned(), String::new());
    let change = || disk.apply(|state| state.change(Change::AuditOnly, note()));
    let waiting: Vec<_> = (0..disk::MAX_PENDING_CHANGES).map(|_| change().expect("made")).collect();
    assert!(matches!(change(), Err(ControlError::Unavailable(_))));
    assert_eq!(disk.write(&ArcSwap::default()).0.len(), waiting.len());
    assert!(change().is_ok());
}

#[tokio::test]
async fn a_change_is_made_even_if_its_caller_is_cancelled() {
    let directory = tempfile::tempdir().expect("a directory");
    let control =
        Control::memory(RulesSource::Memory, Some(directory.path().join("rules.json"))).expect("usable");
    let note = control.record_audit("ada", Action::ResetCounter, "k=v", "");
    assert!(note.now_or_never().is_none(), "it waits for the disk");
    let deadline = Instant::now() + Duration::from_secs(20);
    while control.audit(None, 10).await.expect("a response").is_empty() {
        assert!(Instant::now() < deadline, "the change is not made");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_change_that_is_not_written_is_reverted() {
    let directory = tempfile::tempdir().expect("a directory");
    let below = directory.path().join("below");
    fs::create_dir(&below).expect("created");
    let control = Control::memory(RulesSource::Memory, Some(below.join("rules.json"))).expect("usable");
    fs::remove_dir_all(&below).expect("removed");
    let refused = control.apply(draft(None, "domain: a")).await;
    assert!(matches!(refused, Err(ControlError::Unavailable(_))));
    assert_eq!(control.current().await, Ok(None));
    fs::create_dir(&below).expect("created");
    assert_eq!(control.apply(draft(None, "domain: a")).await.map(|version| version.number), Ok(1));
}

#[tokio::test]
async fn the_oldest_versions_are_dropped_and_the_current_one_never() {
    let control = Control::memory(RulesSource::Memory, None).expect("usable");
    let large = "#".repeat((2 << 20) - "a.yaml".len());
    for number in 0..40 {
        control.apply(draft((number > 0).then_some(number), &large)).await.expect("made");
    }
    let stored = control.versions(None, 100).await.expect("a response");
    assert_eq!((stored.len(), stored[0].number), (32, 40));
}
