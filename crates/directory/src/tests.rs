//! Which files of a directory are read: links, hidden files, too many files, and other things than files.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::{fs, path::Path, process::Command, time::SystemTime};

use tempfile::TempDir;

use crate::{DirectoryError, read};

/// Creates a directory with these files.
pub(crate) fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, content) in files {
        write(directory.path(), name, content);
    }
    directory
}

pub(crate) fn write(directory: &Path, name: &str, content: &str) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Dates all files back, so that none seems to be written just now.
pub(crate) fn age(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => age(&path),
            Ok(metadata) if metadata.is_file() => {
                let file = fs::File::options().write(true).open(path).unwrap();
                file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }
            _ => {}
        }
    }
}

/// Names of the files that are read.
fn names(directory: &Path) -> Vec<String> {
    let files = read(directory).unwrap();
    assert_eq!(files.unreadable().collect::<Vec<_>>(), []);
    files.readable().map(|(name, _)| name.to_owned()).collect()
}

/// A line for each file that cannot be read.
fn unreadable(directory: &Path) -> String {
    let lines = read(directory).unwrap();
    let lines: Vec<_> = lines.unreadable().map(|(name, reason)| format!("{name}: {reason}")).collect();
    lines.join("\n")
}

#[test]
fn files_in_directories_below_count_and_hidden_ones_do_not() {
    let directory = directory(&[
        ("a.yaml", ""),
        ("b.yml", ""),
        ("sub/deep/c.yaml", ""),
        (".git/d.yaml", ""),
        (".e.yaml", ""),
        ("f.txt", ""),
    ]);
    assert_eq!(names(directory.path()), ["a.yaml", "b.yml", "sub/deep/c.yaml"]);
    assert_eq!(names(&directory.path().join("b.yml")), ["b.yml"]);
    assert_eq!(read(directory.path()).unwrap().ignored, ["f.txt"]);
}

#[test]
fn a_directory_that_is_not_there_or_a_file_is_an_error() {
    let directory = directory(&[("config", "domain: d\n")]);
    let error = |name| read(&directory.path().join(name)).unwrap_err();
    assert!(error("none").is_not_found());
    let error = error("config");
    assert!(matches!(error, DirectoryError::Unreadable { .. }) && !error.is_not_found());
    assert!(error.to_string().contains("config cannot be read: Not a directory"), "{error}");
}

#[test]
fn the_mount_of_a_kubernetes_config_map_is_read_once() {
    let directory = directory(&[("..2024_01_01/a.yaml", "")]);
    symlink("..2024_01_01", directory.path().join("..data")).unwrap();
    symlink("..data/a.yaml", directory.path().join("a.yaml")).unwrap();
    assert_eq!(names(directory.path()), ["a.yaml"]);
}

#[test]
fn links_in_circles_and_links_to_nowhere() {
    let directory = directory(&[("sub/a.yaml", "")]);
    symlink("..", directory.path().join("sub/up")).unwrap();
    assert_eq!(names(directory.path()), ["sub/a.yaml"]);
    symlink("nowhere", directory.path().join("b.yaml")).unwrap();
    assert!(unreadable(directory.path()).starts_with("b.yaml: No such file"));
}

#[test]
fn files_that_are_too_large_are_refused() {
    let directory = TempDir::new().unwrap();
    let file = fs::File::create(directory.path().join("a.yaml")).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    assert_eq!(unreadable(directory.path()), "a.yaml: larger than 16 MiB, the maximum file size");
}

#[test]
fn files_that_are_too_large_together_are_refused() {
    let directory = TempDir::new().unwrap();
    for at in 0..6 {
        fs::write(directory.path().join(format!("{at}.yaml")), "x".repeat(16_000_000)).unwrap();
    }
    assert_eq!(
        unreadable(directory.path()),
        "4.yaml: the files up to this one are larger than 64 MiB, the maximum total size"
    );
    assert_eq!(read(directory.path()).unwrap().readable().count(), 4, "no file after it is read");
}

#[test]
fn pipes_devices_and_sockets_are_refused_without_a_wait() {
    let directory = TempDir::new().unwrap();
    let pipe = Command::new("mkfifo").arg(directory.path().join("pipe.yaml")).status();
    assert!(pipe.expect("mkfifo runs").success());
    symlink("/dev/zero", directory.path().join("device.yaml")).unwrap();
    let _socket = UnixListener::bind(directory.path().join("socket.yaml")).unwrap();
    assert_eq!(
        unreadable(directory.path()),
        "device.yaml: is a device; expected a file\n\
         pipe.yaml: is a named pipe; expected a file\n\
         socket.yaml: is a socket; expected a file"
    );
}

#[test]
fn a_file_that_may_not_be_read_is_named_and_so_is_a_directory() {
    let directory = directory(&[("a.yaml", ""), ("sub/b.yaml", "")]);
    let lock = |name: &str, mode| {
        fs::set_permissions(directory.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    lock("a.yaml", 0o000);
    lock("sub", 0o000);
    let is_root = fs::read_dir(directory.path().join("sub")).is_ok();
    let text = unreadable(directory.path());
    lock("sub", 0o755);
    // Permissions do not apply to root.
    let expected = ["a.yaml: Permission denied", "sub: Permission denied"];
    assert!(
        if is_root { text.is_empty() } else { expected.iter().all(|line| text.contains(line)) },
        "{text}"
    );
}

#[test]
fn directories_that_can_not_be_walked_do_not_count_as_depth() {
    let directory = TempDir::new().unwrap();
    for at in 0..20 {
        write(directory.path(), &format!("d{at}/{}/a.yaml", vec!["x"; 16].join("/")), "");
    }
    write(directory.path(), "z/y/x/a.yaml", "");
    let text = unreadable(directory.path());
    assert!(text.contains("directories nested more than 16 levels deep") && !text.contains("z/y"), "{text}");
}

#[test]
fn links_between_directories_multiply_no_files() {
    let directory = TempDir::new().unwrap();
    for level in 0..12 {
        let here = directory.path().join(format!("d{level}"));
        fs::create_dir_all(&here).unwrap();
        for link in 0..10 {
            symlink(format!("../d{}", level + 1), here.join(format!("l{link}"))).unwrap();
        }
    }
    write(directory.path(), "d12/a.yaml", "");
    let error = match read(directory.path()) {
        Ok(_) => unreadable(directory.path()),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(": more than 20000 files and directories"), "{error}");
}
