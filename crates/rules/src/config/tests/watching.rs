//! Changes of files, as editors, deployments and Kubernetes make them.

use std::{
    os::unix::fs::symlink,
    sync::mpsc::{Receiver, TryRecvError, channel},
    time::Duration,
};

use super::*;
use crate::config::Watcher;

const GOOD: &str = "domain: good\n";
const BETTER: &str = "domain: better\n";
const BAD: &str = "domain: [\n";

/// Far longer than a change takes; only a failing test waits for it.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than a change takes; a test that expects no report waits for it.
const QUIET_PERIOD: Duration = Duration::from_millis(900);

/// Reports of the watcher: the names of the domains, or the problems.
type Reports = Receiver<Result<Vec<String>, String>>;

fn watch(directory: &Path) -> (Watcher, Reports) {
    let (reports, received) = channel();
    let seen = load(directory, &Options::default());
    let seen = seen.map_or_else(|error| error.fingerprint(), |loaded| loaded.fingerprint);
    let watcher = Watcher::spawn(directory, Options::default(), Some(seen), move |outcome| {
        let names = |loaded: Loaded| loaded.rules.domains().map(|domain| domain.name.to_string()).collect();
        let _ = reports.send(outcome.map(names).map_err(|error| error.to_string()));
    });
    (watcher.unwrap(), received)
}

#[track_caller]
fn expect(reports: &Reports, domain: &str) {
    let report = reports.recv_timeout(TIMEOUT).expect("a report in time");
    assert_eq!(report.as_deref(), Ok(&[domain.to_owned()][..]));
}

/// Expects a file written in place, which may first be read empty, between truncation and write.
#[track_caller]
fn expect_written(reports: &Reports, domain: &str) {
    let mut report = reports.recv_timeout(TIMEOUT).expect("a report in time");
    if report.is_err() {
        report = reports.recv_timeout(TIMEOUT).expect("a report in time");
    }
    assert_eq!(report.as_deref(), Ok(&[domain.to_owned()][..]));
}

#[track_caller]
fn expect_silence(reports: &Reports) {
    assert!(reports.recv_timeout(QUIET_PERIOD).is_err());
}

#[test]
fn the_first_version_is_reported_unless_it_was_seen() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (reports, received) = channel();
    let _watcher = Watcher::spawn(directory.path(), Options::default(), None, move |outcome| {
        let _ = reports.send(outcome.is_ok());
    });
    assert_eq!(received.recv_timeout(TIMEOUT), Ok(true));
}

#[test]
fn a_file_that_is_written_in_place() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (_watcher, reports) = watch(directory.path());
    write(directory.path(), "a.yaml", BETTER);
    expect_written(&reports, "better");
    // Equal content is not reported again.
    write(directory.path(), "a.yaml", BETTER);
    expect_silence(&reports);
}

#[test]
fn an_editor_that_renames_a_new_file_over_the_old_one() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (_watcher, reports) = watch(directory.path());
    for content in [BETTER, GOOD] {
        write(directory.path(), ".a.yaml.swp", content);
        fs::rename(directory.path().join(".a.yaml.swp"), directory.path().join("a.yaml")).unwrap();
        expect(&reports, content.trim().strip_prefix("domain: ").unwrap());
    }
}

#[test]
fn a_bad_version_is_reported_once_and_a_good_one_follows() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (_watcher, reports) = watch(directory.path());
    let put = |content| {
        write(directory.path(), ".new", content);
        fs::rename(directory.path().join(".new"), directory.path().join("a.yaml")).unwrap();
    };
    put(BAD);
    assert!(reports.recv_timeout(TIMEOUT).expect("a report in time").is_err());
    put(BAD);
    expect_silence(&reports);
    put(GOOD);
    expect(&reports, "good");
}

#[test]
fn a_half_written_file_that_is_completed() {
    use std::io::Write as _;
    let directory = directory(&[("a.yaml", GOOD)]);
    let (_watcher, reports) = watch(directory.path());
    let mut file = fs::File::create(directory.path().join("a.yaml")).unwrap();
    file.write_all(b"domain: bet").unwrap();
    expect_written(&reports, "bet");
    file.write_all(b"ter\n").unwrap();
    expect(&reports, "better");
}

#[test]
fn files_and_directories_that_are_new() {
    let directory = directory(&[]);
    let (_watcher, reports) = watch(directory.path());
    write(directory.path(), "sub/deep/a.yaml", GOOD);
    expect_written(&reports, "good");
    write(directory.path(), "sub/deep/a.yaml", BETTER);
    expect_written(&reports, "better");
    fs::remove_dir_all(directory.path().join("sub")).unwrap();
    let report = reports.recv_timeout(TIMEOUT).expect("a report in time");
    assert_eq!(report, Ok(Vec::new()));
}

#[test]
fn a_directory_that_is_deleted_and_created_again() {
    let parent = directory(&[("config/a.yaml", GOOD)]);
    let config = parent.path().join("config");
    let (_watcher, reports) = watch(&config);
    for content in [BETTER, GOOD] {
        // Atomically, so that the watcher does not read it empty before.
        fs::rename(&config, parent.path().join("deleted")).unwrap();
        fs::remove_dir_all(parent.path().join("deleted")).unwrap();
        let report = reports.recv_timeout(TIMEOUT).expect("a report in time");
        assert_says(&report.unwrap_err(), &["cannot be read"]);
        write(&config, "a.yaml", content);
        expect_written(&reports, content.trim().strip_prefix("domain: ").unwrap());
    }
}

#[test]
fn a_kubernetes_config_map_that_swaps_its_data() {
    let directory = directory(&[("..1/a.yaml", GOOD)]);
    let mount = directory.path();
    symlink("..1", mount.join("..data")).unwrap();
    symlink("..data/a.yaml", mount.join("a.yaml")).unwrap();
    let (_watcher, reports) = watch(mount);
    for (version, content) in [("..2", BETTER), ("..3", GOOD)] {
        write(mount, &format!("{version}/a.yaml"), content);
        symlink(version, mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        expect(&reports, content.trim().strip_prefix("domain: ").unwrap());
    }
}

#[test]
fn a_link_above_the_directory_that_is_swapped() {
    let root = directory(&[("v1/ratelimit/config/a.yaml", GOOD), ("v2/ratelimit/config/a.yaml", BETTER)]);
    let current = root.path().join("current");
    symlink("v1", &current).unwrap();
    let (_watcher, reports) = watch(&current.join("ratelimit/config"));
    symlink("v2", root.path().join("next")).unwrap();
    fs::rename(root.path().join("next"), &current).unwrap();
    expect(&reports, "better");
    // The new target is watched now.
    write(root.path(), "v2/ratelimit/config/a.yaml", GOOD);
    expect_written(&reports, "good");
}

#[test]
fn a_directory_above_that_is_renamed_away() {
    let root = directory(&[("app/config/a.yaml", GOOD), ("next/config/a.yaml", BETTER)]);
    let (_watcher, reports) = watch(&root.path().join("app/config"));
    fs::rename(root.path().join("app"), root.path().join("old")).unwrap();
    fs::rename(root.path().join("next"), root.path().join("app")).unwrap();
    let report = reports.recv_timeout(TIMEOUT).expect("a report in time");
    // The state between the two renames may have been reported.
    if report.is_err() {
        expect(&reports, "better");
    }
}

#[test]
fn a_file_that_is_a_link_to_another_directory() {
    let other = directory(&[("real.yaml", GOOD)]);
    let directory = TempDir::new().unwrap();
    symlink(other.path().join("real.yaml"), directory.path().join("a.yaml")).unwrap();
    let (_watcher, reports) = watch(directory.path());
    write(other.path(), "real.yaml", BETTER);
    expect_written(&reports, "better");
}

#[test]
fn a_pipe_or_a_bomb_in_place_of_a_file_is_reported_and_the_watching_goes_on() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (_watcher, reports) = watch(directory.path());
    let pipe = std::process::Command::new("mkfifo").arg(directory.path().join(".pipe")).status();
    assert!(pipe.expect("mkfifo runs").success());
    fs::rename(directory.path().join(".pipe"), directory.path().join("a.yaml")).unwrap();
    let report = reports.recv_timeout(TIMEOUT).expect("a report in time").unwrap_err();
    assert_says(&report, &["a.yaml: cannot be read: is a named pipe"]);
    write(directory.path(), ".new", &format!("domain: d\nmetadata: [{}]\n", "a,".repeat(410_000)));
    fs::rename(directory.path().join(".new"), directory.path().join("a.yaml")).unwrap();
    let report = reports.recv_timeout(TIMEOUT).expect("a report in time").unwrap_err();
    assert_says(&report, &["a.yaml:2", "more than 400000 values"]);
    write(directory.path(), ".new", BETTER);
    fs::rename(directory.path().join(".new"), directory.path().join("a.yaml")).unwrap();
    expect(&reports, "better");
}

#[test]
fn dropping_the_watcher_ends_its_thread() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (watcher, reports) = watch(directory.path());
    drop(watcher);
    // The thread owned the sender.
    assert!(matches!(reports.recv_timeout(TIMEOUT), Err(std::sync::mpsc::RecvTimeoutError::Disconnected)));
}

#[test]
fn dropping_a_busy_watcher_does_not_wait_and_stopping_it_does() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (begun, begins) = channel();
    let (release, released) = channel::<()>();
    let watcher = Watcher::spawn(directory.path(), Options::default(), None, move |_| {
        let _ = begun.send(());
        let _ = released.recv();
    });
    begins.recv_timeout(TIMEOUT).expect("the watcher calls back");
    drop(watcher);
    // The thread still runs.
    assert_eq!(release.send(()), Ok(()));
    let (watcher, reports) = watch(directory.path());
    watcher.stop();
    assert_eq!(reports.try_recv(), Err(TryRecvError::Disconnected), "its thread has ended");
}
