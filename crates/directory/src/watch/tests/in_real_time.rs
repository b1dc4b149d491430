//! Changes of files, as editors, deployments and Kubernetes make them.

use std::{os::unix::fs::symlink, sync::mpsc::TryRecvError};

use super::*;
use crate::tests::{age, directory, write};

const GOOD: &str = "good\n";
const BETTER: &str = "better\n";

/// Far longer than a change takes; only a failing test waits for it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than a change takes; a test that expects no report waits for it.
const QUIET_PERIOD: Duration = Duration::from_millis(900);

/// Reports of the watcher: the contents of the files, or an error.
type Reports = Receiver<Result<Vec<String>, String>>;

fn watch(directory: &Path) -> (Watcher, Reports) {
    let (reports, received) = channel();
    age(directory);
    let seen = read(directory).unwrap().fingerprint(false);
    let watcher = Watcher::spawn(directory, false, Some(seen), move |files, _| {
        let contents = files.map_err(|error| error.to_string()).and_then(|files| {
            let unreadable = files.unreadable().map(|(name, reason)| format!("{name}: {reason}")).next();
            unreadable.map_or_else(|| Ok(files.texts().into_values().collect()), Err)
        });
        let _ = reports.send(contents);
        Reply::Taken
    });
    (watcher.unwrap(), received)
}

/// A directory with one good file, which is watched.
fn watched() -> (TempDir, Watcher, Reports) {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (watcher, reports) = watch(directory.path());
    (directory, watcher, reports)
}

#[track_caller]
fn next(reports: &Reports) -> Result<Vec<String>, String> {
    reports.recv_timeout(TIMEOUT).expect("a report in time")
}

/// Expects a report of one file that is `content`.
#[track_caller]
fn expect(reports: &Reports, content: &str) {
    assert_eq!(next(reports).as_deref(), Ok(&[content.to_owned()][..]));
}

/// Renames a new file of this content over `a.yaml`.
fn replace(directory: &Path, content: &str) {
    write(directory, ".a.yaml.swp", content);
    fs::rename(directory.join(".a.yaml.swp"), directory.join("a.yaml")).unwrap();
}

#[track_caller]
fn expect_silence(reports: &Reports) {
    assert!(reports.recv_timeout(QUIET_PERIOD).is_err());
}

#[test]
fn the_first_version_is_reported_unless_it_was_seen() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (reports, received) = channel();
    let _watcher = Watcher::spawn(directory.path(), false, None, move |files, _| {
        let _ = reports.send(files.is_ok());
        Reply::Taken
    });
    assert_eq!(received.recv_timeout(TIMEOUT), Ok(true));
}

#[test]
fn a_file_that_is_written_in_place() {
    let (directory, _watcher, reports) = watched();
    write(directory.path(), "a.yaml", BETTER);
    expect(&reports, BETTER);
    // Equal content is not reported again.
    write(directory.path(), "a.yaml", BETTER);
    expect_silence(&reports);
}

#[test]
fn an_editor_that_renames_a_new_file_over_the_old_one() {
    let (directory, _watcher, reports) = watched();
    for content in [BETTER, GOOD] {
        replace(directory.path(), content);
        expect(&reports, content);
    }
}

#[test]
fn unchanged_files_are_reported_again_on_request() {
    let (_directory, watcher, reports) = watched();
    watcher.reload()();
    expect(&reports, GOOD);
}

#[test]
fn a_half_written_file_is_reported_once_its_writer_has_closed_it() {
    let (directory, _watcher, reports) = watched();
    let mut file = File::create(directory.path().join("a.yaml")).unwrap();
    file.write_all(b"bet").unwrap();
    expect_silence(&reports);
    file.write_all(b"ter\n").unwrap();
    drop(file);
    expect(&reports, BETTER);
}

#[test]
fn files_and_directories_that_are_new() {
    let directory = directory(&[]);
    let (_watcher, reports) = watch(directory.path());
    write(directory.path(), "sub/deep/a.yaml", GOOD);
    expect(&reports, GOOD);
    write(directory.path(), "sub/deep/a.yaml", BETTER);
    expect(&reports, BETTER);
    fs::remove_dir_all(directory.path().join("sub")).unwrap();
    assert_eq!(next(&reports), Ok(Vec::new()));
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
        assert!(next(&reports).unwrap_err().contains("cannot be read"));
        write(&config, "a.yaml", content);
        expect(&reports, content);
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
        expect(&reports, content);
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
    expect(&reports, BETTER);
    // The new target is watched now.
    write(root.path(), "v2/ratelimit/config/a.yaml", GOOD);
    expect(&reports, GOOD);
}

#[test]
fn a_directory_above_that_is_renamed_away() {
    let root = directory(&[("app/config/a.yaml", GOOD), ("next/config/a.yaml", BETTER)]);
    let (_watcher, reports) = watch(&root.path().join("app/config"));
    fs::rename(root.path().join("app"), root.path().join("old")).unwrap();
    fs::rename(root.path().join("next"), root.path().join("app")).unwrap();
    // The state between the two renames may have been reported.
    if next(&reports).is_err() {
        expect(&reports, BETTER);
    }
}

#[test]
fn a_file_that_is_a_link_to_another_directory() {
    let other = directory(&[("real.yaml", GOOD)]);
    let directory = TempDir::new().unwrap();
    symlink(other.path().join("real.yaml"), directory.path().join("a.yaml")).unwrap();
    let (_watcher, reports) = watch(directory.path());
    write(other.path(), "real.yaml", BETTER);
    expect(&reports, BETTER);
}

#[test]
fn a_pipe_in_place_of_a_file_is_reported_and_the_watching_goes_on() {
    let (directory, _watcher, reports) = watched();
    let pipe = std::process::Command::new("mkfifo").arg(directory.path().join(".pipe")).status();
    assert!(pipe.expect("mkfifo runs").success());
    fs::rename(directory.path().join(".pipe"), directory.path().join("a.yaml")).unwrap();
    assert_eq!(next(&reports).unwrap_err(), "a.yaml: is a named pipe; expected a file");
    replace(directory.path(), BETTER);
    expect(&reports, BETTER);
}

#[test]
fn dropping_the_watcher_ends_its_thread() {
    let (_directory, watcher, reports) = watched();
    drop(watcher);
    // The thread owned the sender.
    assert!(matches!(reports.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected)));
}

#[test]
fn dropping_a_busy_watcher_does_not_wait_and_stopping_it_does() {
    let directory = directory(&[("a.yaml", GOOD)]);
    let (begun, begins) = channel();
    let (release, released) = channel::<()>();
    let watcher = Watcher::spawn(directory.path(), false, None, move |_, _| {
        let _ = begun.send(());
        let _ = released.recv();
        Reply::Taken
    });
    begins.recv_timeout(TIMEOUT).expect("the watcher calls back");
    drop(watcher);
    // The thread still runs.
    assert_eq!(release.send(()), Ok(()));
    let (watcher, reports) = watch(directory.path());
    watcher.stop();
    assert_eq!(reports.try_recv(), Err(TryRecvError::Disconnected), "its thread has ended");
}

/// Rewrites five files of a directory in real time with random pauses, and returns the versions that were read and their
/// smallest number of rules, less the smaller number of the old and the new version.
fn soak(seed: u64) -> (usize, isize) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let names = ["a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml"];
    let counts = [(); 2].map(|()| [(); 5].map(|()| 1 + below(20) as usize));
    let directory = TempDir::new().unwrap();
    for (domain, name) in names.iter().enumerate() {
        write(directory.path(), name, &file(&format!("d{domain}."), counts[0][domain], LIMITS[0]));
    }
    age(directory.path());
    let seen = read(directory.path()).unwrap();
    let (mut active, (reports, received)) = (limits(&seen), channel());
    let watcher =
        Watcher::spawn(directory.path(), false, Some(seen.fingerprint(false)), move |files, is_quiet| {
            let Ok(files) = files else { return Reply::Taken };
            let found = limits(&files);
            if !is_quiet && lacks(&found, &active) {
                return Reply::Early { awaiting: "files that remove rules" };
            }
            assert!(found.iter().all(|(_, limit)| LIMITS.contains(limit)));
            let _ = reports.send(found.len());
            active = found;
            Reply::Taken
        });
    let mut pause = |in_: u64| {
        if below(in_) < 10 {
            thread::sleep(Duration::from_millis(below(2_000)));
        }
    };
    for (domain, name) in names.iter().enumerate() {
        let text = file(&format!("d{domain}."), counts[1][domain], LIMITS[1]);
        let mut file = File::create(directory.path().join(name)).unwrap();
        for byte in text.bytes() {
            pause(text.len() as u64);
            file.write_all(&[byte]).unwrap();
        }
    }
    thread::sleep(Duration::from_secs(8));
    watcher.unwrap().stop();
    let found: Vec<usize> = received.try_iter().collect();
    let sums = counts.map(|counts| counts.iter().sum::<usize>());
    assert_eq!(found.last(), Some(&sums[1]), "the new version is read");
    let fewest = found.iter().copied().min().unwrap_or_default();
    (found.len(), fewest as isize - sums[0].min(sums[1]) as isize)
}

/// 200 files in 40 directories, in real time:
/// `cargo test -p tollgate-directory --lib -- --ignored --nocapture soak`
#[test]
#[ignore = "a soak of about two minutes"]
#[allow(clippy::print_stdout)]
fn soak_of_200_files_whose_writers_pause_for_up_to_two_seconds() {
    let threads: Vec<_> = (1..=40).map(|seed| thread::spawn(move || soak(seed))).collect();
    let soaked: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("no assertion failed")).collect();
    let (versions, margin) =
        (soaked.iter().map(|(count, _)| count).sum::<usize>(), soaked.iter().map(|(_, m)| m).min());
    println!(
        "200 files: {versions} versions were read, the smallest with {margin:?} rules more than required"
    );
    assert!(margin.is_some_and(|margin| *margin >= 0));
}
