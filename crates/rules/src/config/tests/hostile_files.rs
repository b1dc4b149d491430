//! Directories with too many files, or with other things than files.

use std::{
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::UnixListener,
    },
    process::Command,
};

use super::*;

fn rejected(directory: &Path) -> String {
    load(directory, &Options::default()).expect_err("it loads").to_string()
}

#[test]
fn pipes_devices_and_sockets_are_rejected_without_a_wait() {
    let directory = TempDir::new().unwrap();
    let pipe = Command::new("mkfifo").arg(directory.path().join("pipe.yaml")).status();
    assert!(pipe.expect("mkfifo runs").success());
    symlink("/dev/zero", directory.path().join("device.yaml")).unwrap();
    let _socket = UnixListener::bind(directory.path().join("socket.yaml")).unwrap();
    assert_eq!(
        rejected(directory.path()),
        "device.yaml: cannot be read: is a device; expected a file\n\
         pipe.yaml: cannot be read: is a named pipe; expected a file\n\
         socket.yaml: cannot be read: is a socket; expected a file"
    );
}

#[test]
fn a_file_that_may_not_be_read_is_named_and_so_is_a_directory() {
    let directory = directory(&[("a.yaml", "domain: a\n"), ("sub/b.yaml", "domain: b\n")]);
    let lock = |name: &str, mode| {
        fs::set_permissions(directory.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    lock("a.yaml", 0o000);
    lock("sub", 0o000);
    let is_root = fs::read_dir(directory.path().join("sub")).is_ok();
    let loaded = load(directory.path(), &Options::default());
    lock("sub", 0o755);
    match loaded {
        // Permissions do not apply to root.
        Ok(_) => assert!(is_root),
        Err(error) => assert_says(
            &error.to_string(),
            &["a.yaml: cannot be read: Permission denied", "sub: cannot be read: Permission denied"],
        ),
    }
}

#[test]
fn directories_that_can_not_be_walked_do_not_count_as_depth() {
    let directory = TempDir::new().unwrap();
    for at in 0..20 {
        write(directory.path(), &format!("d{at}/{}/a.yaml", vec!["x"; 16].join("/")), "domain: a\n");
    }
    write(directory.path(), "z/y/x/a.yaml", "domain: z\n");
    let text = rejected(directory.path());
    assert!(!text.contains("z/y"), "{text}");
    assert_says(&text, &["directories nested more than 16 levels deep"]);
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
    write(directory.path(), "d12/a.yaml", "domain: a\n");
    assert_says(&rejected(directory.path()), &["cannot be read: more than 20000 files and directories"]);
}

#[test]
fn files_that_are_too_large_together_are_rejected() {
    let directory = TempDir::new().unwrap();
    let content = format!("domain: d\n#{}\n", "x".repeat(16_000_000));
    for at in 0..6 {
        fs::write(directory.path().join(format!("{at}.yaml")), &content).unwrap();
    }
    let options = Options { merge_domains: true, ..Options::default() };
    let text = load(directory.path(), &options).unwrap_err().to_string();
    assert_eq!(
        text,
        "4.yaml: cannot be read: the files up to this one are larger than 64 MiB, the maximum total size"
    );
}

#[test]
fn a_directory_that_became_a_file_is_an_error() {
    let directory = directory(&[("config", "domain: d\n")]);
    assert_says(&rejected(&directory.path().join("config")), &["config cannot be read: Not a directory"]);
}

#[test]
fn control_characters_are_rejected_where_they_stand() {
    for (content, problem) in [
        (&b"domain: d\n\0descriptors: 5\n"[..], "a.yaml:2: control character \\u{0}"),
        (b"domain: \"\x1b[31m\"\n", "a.yaml:1: control character \\u{1b}"),
        (b"domain: d # \xc2\x9f\n", "a.yaml:1: control character \\u{9f}"),
        (b"\xff\xfed\0o\0", "a.yaml:1: invalid UTF-8; expected a file saved as UTF-8"),
    ] {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("a.yaml"), content).unwrap();
        assert_says(&rejected(directory.path()), &[problem]);
    }
    clean("\u{feff}domain: d\r\n# tab\there, next line\u{85}, \u{1F600}\r\n");
}
